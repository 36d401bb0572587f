"""The cost of each command of the broker's log for a member whose state is at its limits."""
