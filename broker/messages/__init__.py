"""Message records in the log: the ends of queues, index units, and the ages of parts of the log."""
