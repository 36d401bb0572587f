"""The certificates that servers show, looked at from the host of the clients."""
