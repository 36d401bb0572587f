"""A node's counts for Prometheus, over HTTP."""
