"""A group over the network: who leads, asking it, following its log."""
