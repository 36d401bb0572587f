"""Settings of Python's cycle collector for a process that only runs a node."""

from __future__ import annotations

import gc

# A turn of a busy leader makes a few thousand short-lived objects and no cycles. With the default
# of 700 the collector runs several times a turn and finds nothing: 10 to 20 % of the time.
YOUNG_OBJECTS = 25_000
# How many young collections make a middle one, and how many of those a full one. Of objects that
# stay, as those of ten thousand clients that come at once, a middle one takes 45 ms.
MIDDLE_EVERY, FULL_EVERY = 2, 1_000


def collect_seldom() -> None:
    """Exclude all present objects from collections, and collect seldom.

    For the `main` of a server process; a library must not decide this for its application.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, MIDDLE_EVERY, FULL_EVERY)
