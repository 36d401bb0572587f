"""Commands over sockets: connections, servers and clients."""
