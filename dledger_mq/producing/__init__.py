"""The producer, and the transactions that it opens."""
