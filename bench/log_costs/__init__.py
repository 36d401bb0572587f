"""What each command of the broker's log costs a member whose state is as full as it may be."""
