"""The message records in the log: folded into queue ends, index units and the age of the log."""
