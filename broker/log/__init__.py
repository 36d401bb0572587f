"""The entries of the log, and the fold of them into the state.

A feature adds its commands and its parts of the state through a `Registry`.
"""
