"""The keys of a stored message: its unique key, and each word of its KEYS."""

from collections.abc import Sequence
from typing import Final

from broker.messages.record_facts import properties_run
from remoting.message.properties import found_value

# A message may have 32 KiB of one-letter keys. Java indexes them all; each takes some 20 bytes of
# disk and some microseconds.
MAX_KEYS_PER_MESSAGE: Final = 256

_UNIQUE: Final = b"UNIQ_KEY"
_WORDS: Final = b"KEYS"


def keys_of(record: bytes) -> Sequence[str]:
    """Return the keys by which a record is found, at most 256."""
    properties = properties_run(record)
    unique, words = found_value(properties, _UNIQUE), found_value(properties, _WORDS)
    keys = [unique] if unique else []
    if words:
        keys += [word for word in words.split(" ") if word]
    return keys[:MAX_KEYS_PER_MESSAGE]
