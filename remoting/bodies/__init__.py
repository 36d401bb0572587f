"""The JSON bodies of requests and replies, each in the module of its noun."""
