"""A stateless proxy: it answers the gRPC clients of RocketMQ 5, and asks brokers by remoting."""
