"""The format of the log, which limits the forms of its entries."""
