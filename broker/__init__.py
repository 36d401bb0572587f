"""A RocketMQ-compatible broker: a message state machine over a `dledger` group.

The log is the truth. Messages, topics, consumer groups and consumer offsets are its entries;
everything else here is a fold over them and can be rebuilt. Import the modules by name.
"""
