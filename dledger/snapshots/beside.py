"""Work that would hold up the event loop, and how the result comes back to it."""

from __future__ import annotations

from collections.abc import Callable

# What is to be done in the loop when the work is over.
Continuation = Callable[[], None]

# Runs the work beside the loop, then, in the loop, what the work returned. What the work or its
# continuation raises ends the node; work that may fail says in its continuation what then.
Beside = Callable[[Callable[[], Continuation]], None]
