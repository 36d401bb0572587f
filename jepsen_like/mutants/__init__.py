"""Known mistakes, and whether the harness finds each of them."""
