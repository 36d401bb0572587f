"""Whole hosts under a virtual clock, over a network and disks in memory."""
