"""Operators' requests about consumer groups: their members, topics, progress and answers."""
