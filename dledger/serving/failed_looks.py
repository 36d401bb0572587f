"""Logs which methods of a state machine raised when clients read it."""

from __future__ import annotations

import logging
from typing import Final

import trio

logger = logging.getLogger(__name__)

# One method is logged this often: a client may ask a thousand times a second.
TELL_S: Final = 60.0

# A client gets this much of an error's text: it has no use for a dump of the state.
_MAX_TEXT_CHARACTERS: Final = 200


class FailedLooks:
    def __init__(self) -> None:
        self._told_at: dict[str, float] = {}

    def tell(self, method: str, error: Exception) -> str:
        """Log the error with its traceback, unless its method was logged just now; return its
        text.
        """
        now = trio.current_time()
        if now - self._told_at.get(method, -TELL_S) >= TELL_S:
            self._told_at[method] = now
            logger.error("%s() of the state machine raised", method, exc_info=error)
        text = str(error)
        if len(text) > _MAX_TEXT_CHARACTERS:
            text = f"{text[:_MAX_TEXT_CHARACTERS]}..."
        return f"{type(error).__name__}: {text}" if text else type(error).__name__
