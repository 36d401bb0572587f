"""RocketMQ's client of C++ as producers and consumers of a run."""
