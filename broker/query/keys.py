"""The keys of a stored message: its unique key, and each word of its KEYS."""

from collections.abc import Sequence
from typing import Final

from broker.messages.record_facts import properties_run
from remoting.message.properties import decode_some

# A message may have 32 KiB of one-letter keys. Java indexes them all; each costs some 20 bytes on
# the disk for ever, and some microseconds.
MAX_KEYS_PER_MESSAGE: Final = 256

_NAMES: Final = {b"UNIQ_KEY": "UNIQ_KEY", b"KEYS": "KEYS"}


def keys_of(record: bytes) -> Sequence[str]:
    """The keys of a record by which it is found; those beyond 256 are left out."""
    properties = decode_some(properties_run(record), _NAMES)
    unique, words = properties.get("UNIQ_KEY"), properties.get("KEYS")
    keys = [unique] if unique else []
    if words:
        keys += [word for word in words.split(" ") if word]
    return keys[:MAX_KEYS_PER_MESSAGE]
