"""Runs blocking work beside the event loop, and returns its result to the loop."""

from __future__ import annotations

from collections.abc import Callable

# Runs in the loop after the work.
Continuation = Callable[[], None]

# Runs the work beside the loop, then, in the loop, the continuation that the work returned. An
# exception of either ends the node; work that may fail handles the failure in its continuation.
Beside = Callable[[Callable[[], Continuation]], None]
