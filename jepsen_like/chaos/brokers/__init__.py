"""The processes of runs with brokers: a member, and its clients."""
