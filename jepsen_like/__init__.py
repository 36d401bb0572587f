"""Breaks the log and the broker on purpose: simulation in virtual time, chaos on real processes."""
