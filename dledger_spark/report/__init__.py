"""One HTML page of what an operator looks at first, from the tables of a log."""
