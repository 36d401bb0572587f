"""Measures brokers: ours, and RocketMQ's own."""
