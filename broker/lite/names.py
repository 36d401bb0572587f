"""Names of lite topics."""

import re
from typing import Final

from broker.errors import RequestRefused

MAX_LITE_TOPIC_CHARACTERS: Final = 64

_LEGAL: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)


def is_lite_name(name: str) -> bool:
    return _LEGAL.fullmatch(name) is not None


def lite_key(name: str) -> bytes:
    """Return the form of a name in tables. Raises RequestRefused (29): it is not allowed."""
    if not is_lite_name(name):
        raise RequestRefused.invalid(
            f"lite topic {name!r:.80}: use 1 to {MAX_LITE_TOPIC_CHARACTERS} letters, digits, '_' "
            "and '-'"
        )
    return name.encode()
