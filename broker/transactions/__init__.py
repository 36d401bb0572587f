"""Transactional messages: stored, and delivered when their producer says that it has committed."""
