"""Waits of tasks for a node: until an entry is committed or applied, a read confirmed, a transfer
done.
"""
