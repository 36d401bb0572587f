"""Tasks that wait for something to come true of a node: committed, applied, read, moved."""
