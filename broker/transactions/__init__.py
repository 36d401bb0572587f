"""Transactional messages: stored at once, and delivered when their producer commits."""
