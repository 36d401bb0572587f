"""Sends: from the request to the record in the log, and back to the reply."""
