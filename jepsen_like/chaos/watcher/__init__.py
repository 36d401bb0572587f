"""A process beside a run that leaves nothing of it behind, however the run ends."""
