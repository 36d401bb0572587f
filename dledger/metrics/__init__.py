"""A node's counts for Prometheus, over HTTP where it is asked for."""
