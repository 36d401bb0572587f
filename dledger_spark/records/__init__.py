"""Messages and commands in the bodies of entries: where they lie, and which ones brokers refuse."""
