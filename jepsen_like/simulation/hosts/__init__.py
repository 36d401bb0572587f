"""Whole hosts under a virtual clock: what a process runs, over a network and disks in memory."""
