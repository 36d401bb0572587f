"""The subject of a run: a machine over the library, or a group of brokers."""
