"""Groups whose members run the broker: its machine, its queues, and the leader's services."""
