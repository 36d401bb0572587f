"""Linearizable and lease reads."""
