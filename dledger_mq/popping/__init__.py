"""The consumer that pops: brokers choose its messages, and it acknowledges each."""
