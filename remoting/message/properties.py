r"""Message properties: `name \x01 value \x02`, repeated, in one run of bytes.

The run is kept as it came, because clients write pieces that are no pair (an empty name, a value
with a separator in it) and the same bytes must reach the consumer. Decoding gives a dict; editing
touches only the named pieces. Text is UTF-8; other bytes survive both ways.
Source: RocketMQ's MessageDecoder and its clients' habits.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from remoting.message.errors import MessageMalformed
from remoting.wire.field_values import read_natural

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
_SEPARATOR_BYTE: Final = 2

# The length field of a stored record is a signed 16-bit number.
MAX_PROPERTIES_BYTES: Final = 32767

# Names, and who sets them. Client:
KEYS: Final = "KEYS"  # words to find the message by, separated by spaces
TAGS: Final = "TAGS"  # one tag
WAIT_STORE_MESSAGE_OK: Final = "WAIT"
DELAY_TIME_LEVEL: Final = "DELAY"
TIMER_DELAY_S: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
UNIQUE_KEY: Final = "UNIQ_KEY"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
TRANSACTION_ID: Final = "__transactionId__"
CHECK_IMMUNITY_S: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
SHARDING_KEY: Final = "__SHARDINGKEY"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
REPLY_TIME_TO_LIVE: Final = "TTL"
MESSAGE_TYPE: Final = "MSG_TYPE"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
LITE_TOPIC: Final = "__LITE_TOPIC"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
# Broker, or a client that sends a message back by itself:
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
MESSAGE_REGION: Final = "MSG_REGION"
TRACE_SWITCH: Final = "TRACE_ON"
CLUSTER: Final = "CLUSTER"
DEAD_LETTER_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DEAD_LETTER_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
POP_CHECKPOINT: Final = "POP_CK"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
LITE_QUEUE: Final = "INNER_MULTI_DISPATCH"
LITE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
# Consumer side only, never stored:
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"


def properties_text(raw: bytes) -> str:
    """Return the run as text for a header's `properties` field."""
    return raw.decode("utf-8", "surrogateescape")


def properties_bytes(text: str) -> bytes:
    """Return the run as bytes for a record, from a header's `properties` field.

    Raises:
        MessageMalformed: the text has half a surrogate pair, which no frame contains.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise MessageMalformed(
            "message properties hold a lone surrogate: send valid text"
        ) from None


def decode_some(raw: bytes, names: Mapping[bytes, str]) -> dict[str, str]:
    """Decode the pairs whose names are keys of `names`; the results have the names there.

    Faster than `decode_properties` if few of many pairs are needed.
    """
    found: dict[str, str] = {}
    for piece in raw.split(b"\x02"):
        name, separator, value = piece.partition(b"\x01")
        if separator and name in names:
            found[names[name]] = value.decode("utf-8", "surrogateescape")
    return found


def found_value(raw: bytes, name: bytes) -> str | None:
    """Return the value of one name in a run, or None. Of several pairs the last one counts."""
    at = last_pair(raw, name + b"\x01")
    if at < 0:
        return None
    begin = at + len(name) + 1
    end = raw.find(b"\x02", begin)
    return raw[begin : end if end >= 0 else None].decode("utf-8", "surrogateescape")


def name_mark(name: str) -> bytes:
    """Return the beginning of a pair of this name, for `has_pair` and `last_pair`."""
    return properties_bytes(name + NAME_VALUE_SEPARATOR)


def last_pair(raw: bytes, mark: bytes, begin: int = 0, end: int | None = None) -> int:
    """Return the place of the last pair of a name in a run, or -1.

    Args:
        raw: bytes with a run.
        mark: see `name_mark`.
        begin: where the run begins in `raw`.
        end: where it ends; None for the end of `raw`.
    """
    at = raw.rfind(mark, begin, end)
    while at > begin and raw[at - 1] != _SEPARATOR_BYTE:
        # This is the end of another name, or a part of a value.
        at = raw.rfind(mark, begin, at + len(mark) - 1)
    return at


def first_pair(raw: bytes, mark: bytes, begin: int = 0, end: int | None = None) -> int:
    """Return the place of the first pair of a name, or -1, like `last_pair`."""
    at = raw.find(mark, begin, end)
    while at > begin and raw[at - 1] != _SEPARATOR_BYTE:
        at = raw.find(mark, at + 1, end)
    return at


def has_pair(raw: bytes, mark: bytes) -> bool:
    """Return whether a run has a pair of this name; see `name_mark`."""
    at = raw.find(mark)
    return at >= 0 and (not at or raw[at - 1] == _SEPARATOR_BYTE or last_pair(raw, mark) >= 0)


def with_last_pair_alone(raw: bytes, mark: bytes) -> bytes:
    """Return the run with only the last pair of a name, which is the one that counts."""
    if raw.count(mark) < 2:
        return raw
    last = last_pair(raw, mark)
    if first_pair(raw, mark) == last:
        return raw  # the other marks are ends of other names, or parts of values
    kept = [piece for piece in raw[:last].split(b"\x02") if not piece.startswith(mark)]
    return b"\x02".join(kept) + raw[last:]


def is_whole(run: bytes, needed: bytes, alone: bytes) -> bool:
    """Return whether a run has the pair `needed`, and `alone` at most once. It may be wrongly
    False.
    """
    at = run.find(needed)
    return at >= 0 and (not at or run[at - 1] == _SEPARATOR_BYTE) and run.count(alone) < 2


def mended_runs(
    runs: Sequence[bytes], needed: bytes, alone: bytes, mend: Callable[[bytes], bytes]
) -> list[bytes]:
    """Return each run that `is_whole`, and the result of `mend` for each other one.

    In one pass, without a call for each: every message of a batch passes here.
    """
    return [
        run
        if (at := run.find(needed)) >= 0
        and (not at or run[at - 1] == _SEPARATOR_BYTE)
        and run.count(alone) < 2
        else mend(run)
        for run in runs
    ]


def shown_value(value: str) -> str:
    """Return a value for a header: bytes that are not UTF-8 become U+FFFD."""
    try:
        raw = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a half of a surrogate pair that no bytes have given
        raw = value.encode("utf-8", "surrogatepass")
    return raw.decode("utf-8", "replace")


def kept_queue_id(pairs: Mapping[str, str]) -> int:
    """Return the later queue of a message, as the broker that keeps it noted."""
    return read_natural(pairs.get(REAL_QUEUE_ID, "")) or 0


def decode_properties(raw: bytes | str) -> dict[str, str]:
    """Decode the pairs of a run, ignoring pieces without a name or without a separator.

    A name that occurs twice has its last value; a pair with an empty value is kept.
    """
    text = raw if isinstance(raw, str) else raw.decode("utf-8", "surrogateescape")
    pairs: dict[str, str] = {}
    for piece in text.split(PROPERTY_SEPARATOR):
        name, separator, value = piece.partition(NAME_VALUE_SEPARATOR)
        if name and separator:
            pairs[name] = value
    return pairs


def encode_properties(pairs: Mapping[str, str]) -> bytes:
    r"""Encode `pairs` in their order, each with its closing \x02.

    Raises:
        MessageMalformed: a name is empty or holds a separator, a value holds \x02, or a text
            cannot be UTF-8.
    """
    return properties_bytes(_joined(pairs))


def properties_field(pairs: Mapping[str, str]) -> str:
    """Encode `pairs` for a header's `properties` field. Raises like `encode_properties`."""
    text = _joined(pairs)
    return text if text.isascii() else properties_text(properties_bytes(text))


def _joined(pairs: Mapping[str, str]) -> str:
    for name, value in pairs.items():
        if not name or NAME_VALUE_SEPARATOR in name or PROPERTY_SEPARATOR in name:
            raise MessageMalformed(f"property name {name!r:.60}: use no \\x01, no \\x02, and text")
        if PROPERTY_SEPARATOR in value:
            raise MessageMalformed(f"property {name!r:.60}: its value may not hold \\x02")
    return "".join([f"{name}\x01{value}\x02" for name, value in pairs.items()])


def edit_properties(raw: bytes, changes: Mapping[str, str], removals: Iterable[str] = ()) -> bytes:
    """Set some pairs of a run and remove others, leaving every other byte as it is.

    Args:
        raw: the received run.
        changes: names and their new values; old pairs of these names go, new ones come last.
        removals: names whose pairs go.

    Raises:
        MessageMalformed: a changed pair cannot be written (see `encode_properties`).
    """
    gone = {properties_bytes(name) for name in (*changes, *removals)}
    kept: list[bytes] = []
    for piece in raw.split(b"\x02"):
        name, separator, _value = piece.partition(b"\x01")
        if not (separator and name in gone):
            kept.append(piece)
    run = b"\x02".join(kept)
    if not changes:
        return run
    if run and not run.endswith(b"\x02"):
        run += b"\x02"  # Java 4.9 clients leave out the last separator
    return run + encode_properties(changes)
