"""What a run is about: a machine over the library, or a group of brokers."""
