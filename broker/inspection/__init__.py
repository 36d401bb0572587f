"""Operators' requests about consumer groups: who reads which topics, how far, and what
members say.
"""
