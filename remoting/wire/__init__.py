"""Bytes to commands and back: frames, headers, codes, and the JSON that real clients send."""
