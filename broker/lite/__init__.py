"""Lite topics: any number of small ordered queues below one topic, made by their first message.

Each is for one session, conversation or task, and ends some time after its last message. Source:
RocketMQ 5.5 (RIP-83).
"""
