"""The protocol, pure: what a member of a group decides, given messages and the time."""
