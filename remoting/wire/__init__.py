"""Encodes and decodes commands: frames, headers, codes, and the JSON that real clients send."""
