"""HTTP/2 and the framing of gRPC, on the side of a server. Knows nothing of RocketMQ."""
