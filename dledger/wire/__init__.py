"""What goes over connections, as bytes: frames, channels, and the requests of clients. Pure."""
