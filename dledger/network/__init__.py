"""Connections between processes: dialled, kept, secured, written to."""
