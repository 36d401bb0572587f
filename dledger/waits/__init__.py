"""Waits of tasks for a node: for a commit, an applied entry, a read, a transfer of leadership."""
