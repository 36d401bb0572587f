"""The effects of operations on objects, one after another."""
