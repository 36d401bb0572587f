"""POP: consumers that are given messages for a time, and acknowledge each.

No client holds a queue. What is not acknowledged in time is given again, to any of the group.
"""
