"""Chaos on real processes: `jepsen-like run`."""
