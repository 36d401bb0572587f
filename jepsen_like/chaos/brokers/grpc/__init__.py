"""Producers and consumers of a run that speak gRPC to its proxies."""
