"""Serves peers and clients on one listener, and passes each to its group."""
