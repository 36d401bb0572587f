"""Deliberate transfers of leadership."""
