"""Administrators' requests: figures, settings, statistics, single messages."""
