"""Leadership handed over on purpose."""
