"""Messages and commands in the bodies of entries, and the records that brokers refuse."""
