"""The messages of `apache.rocketmq.v2`."""
