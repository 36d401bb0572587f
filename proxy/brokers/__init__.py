"""What the proxy asks of brokers, and remembers of their answers."""
