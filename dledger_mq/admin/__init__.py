"""Administration: topics, brokers, consumer groups, dead letters."""
