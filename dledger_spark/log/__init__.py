"""Logs that can be read: in the folder of a node, or over the network."""
