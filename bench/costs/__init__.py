"""The cost of each request with the state at its limits and the costliest input."""
