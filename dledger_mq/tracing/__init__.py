"""Traces: what clients tell about each message, and what is read from it."""
