"""How each system is started: ours, and the others beside it."""
