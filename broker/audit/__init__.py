"""The record, in the log, of who asked for a change."""
