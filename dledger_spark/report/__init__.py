"""One HTML page about the tables of a log."""
