"""Snapshots between members: offers, transfers and installation."""
