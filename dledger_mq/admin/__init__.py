"""What operators ask of brokers and order: topics, groups, progress, dead letters."""
