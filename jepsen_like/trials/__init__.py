"""Looks for a known mistake, by simulation or by chaos."""
