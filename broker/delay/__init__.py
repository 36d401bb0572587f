"""Messages that are delivered later: the levels of RocketMQ 4 and the timers of RocketMQ 5."""
