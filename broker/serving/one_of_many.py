"""Keeps a failure of one of many things from the others."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dledger import Fatal

_log = logging.getLogger(__name__)


def _nothing() -> None:
    """Stands for what is done with a thing that failed."""


@contextmanager
def one_of_many(
    what: str, which: object, set_aside: Callable[[], None] = _nothing
) -> Iterator[None]:
    """What is done with one of many. If it fails, that is logged, and the caller goes on.

    Args:
        what: the thing, in words for a log line.
        which: its name or place.
        set_aside: called if it fails.

    Raises:
        Fatal: the member cannot go on.
    """
    try:
        yield
    except Fatal:
        raise
    except Exception:
        _log.exception("%s failed, and the others go on: %s", what, which)
        set_aside()
