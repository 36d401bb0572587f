"""POP: consumers that are given messages for a time, and acknowledge each.

No client owns a queue. A message that is not acknowledged in time is given again, to any member of
the group.
"""
