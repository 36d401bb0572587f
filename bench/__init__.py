"""Throughput and latency of a group of three real processes, beside peers, in one run."""
