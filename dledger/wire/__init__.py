"""The byte formats of connections: frames, channels, and clients' requests. Pure."""
