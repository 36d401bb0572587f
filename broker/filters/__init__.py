"""SQL92 conditions that choose the messages of a topic for a consumer group."""
