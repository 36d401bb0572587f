"""Message records, batches, and their parts."""
