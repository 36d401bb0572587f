"""The format of the log: what its entries may hold."""
