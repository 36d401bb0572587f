"""Serves clients: requests, the services of features, and what features share."""
