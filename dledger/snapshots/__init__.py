"""Snapshots of the state machine: when they are written, sent, received and restored."""
