"""What producers do: send, recall, and end transactions."""
