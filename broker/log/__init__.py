"""The log's entries, and the fold of them into the state.

A feature adds its commands and its parts of the state by a `Registry`.
"""
