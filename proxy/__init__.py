"""RocketMQ 5 clients: answers their gRPC calls with requests to brokers."""
