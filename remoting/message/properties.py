r"""Message properties: `name \x01 value \x02`, repeated, in one run of bytes.

The run is kept as it came, because clients write pieces that make no pair (an empty name, a value
with a separator in it) and the same bytes must reach the consumer. Reading gives a dict; editing
touches only the pieces it names. Text is UTF-8; bytes that are not survive both ways.
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
# Consumer side only, never stored:
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"


def properties_text(raw: bytes) -> str:
    """The run as text for a header's `properties` field; `properties_bytes` is its inverse."""
    return raw.decode("utf-8", "surrogateescape")


def properties_bytes(text: str) -> bytes:
    """The run as bytes for a record, from a header's `properties` field.

    Raises:
        MessageMalformed: the text holds half a surrogate pair, which no frame can have brought.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise MessageMalformed(
            "message properties hold a lone surrogate: send valid text"
        ) from None


def decode_some(raw: bytes, names: Mapping[bytes, str]) -> dict[str, str]:
    """Those pairs of a run whose names are keys of `names`, under the values there.

    As `decode_properties`, and faster where few of many pairs are wanted.
    """
    found: dict[str, str] = {}
    for piece in raw.split(b"\x02"):
        name, separator, value = piece.partition(b"\x01")
        if separator and name in names:
            found[names[name]] = value.decode("utf-8", "surrogateescape")
    return found


def found_value(raw: bytes, name: bytes) -> str | None:
    """The value of one name in a run, as `decode_properties` has it; None when it is not there."""
    at = last_pair(raw, name + b"\x01")
    if at < 0:
        return None
    begin = at + len(name) + 1
    end = raw.find(b"\x02", begin)
    return raw[begin : end if end >= 0 else None].decode("utf-8", "surrogateescape")


def name_mark(name: str) -> bytes:
    """How a pair of this name begins: what `has_pair`, `has_value` and `last_pair` look for."""
    return properties_bytes(name + NAME_VALUE_SEPARATOR)


def last_pair(raw: bytes, mark: bytes, begin: int = 0, end: int | None = None) -> int:
    """Where the last pair of a name begins in a run; -1 when there is none.

    Args:
        raw: bytes with a run.
        mark: see `name_mark`.
        begin: where the run begins in `raw`.
        end: where it ends; None for the end of `raw`.
    """
    at = raw.rfind(mark, begin, end)
    while at > begin and raw[at - 1] != _SEPARATOR_BYTE:
        # The end of another name, or a part of a value.
        at = raw.rfind(mark, begin, at + len(mark) - 1)
    return at


def first_pair(raw: bytes, mark: bytes, begin: int = 0, end: int | None = None) -> int:
    """As `last_pair`, of the first pair: where the fold of a record looks for its tag."""
    at = raw.find(mark, begin, end)
    while at > begin and raw[at - 1] != _SEPARATOR_BYTE:
        at = raw.find(mark, at + 1, end)
    return at


def has_pair(raw: bytes, mark: bytes) -> bool:
    """Whether a run has a pair of this name; see `name_mark`."""
    at = raw.find(mark)
    return at >= 0 and (not at or raw[at - 1] == _SEPARATOR_BYTE or last_pair(raw, mark) >= 0)


def with_last_pair_alone(raw: bytes, mark: bytes) -> bytes:
    """The run without all pairs of a name but the last one, which is the one that counts."""
    if raw.count(mark) < 2:
        return raw
    last = last_pair(raw, mark)
    if first_pair(raw, mark) == last:
        return raw  # the others are ends of other names, or parts of values
    kept = [piece for piece in raw[:last].split(b"\x02") if not piece.startswith(mark)]
    return b"\x02".join(kept) + raw[last:]


def is_whole(run: bytes, needed: bytes, alone: bytes) -> bool:
    """Whether a run has the one pair and does not have the other twice. May be False in vain."""
    at = run.find(needed)
    return at >= 0 and (not at or run[at - 1] == _SEPARATOR_BYTE) and run.count(alone) < 2


def mended_runs(
    runs: Sequence[bytes], needed: bytes, alone: bytes, mend: Callable[[bytes], bytes]
) -> list[bytes]:
    """Each run as it is if it `is_whole`, or else what `mend` makes of it.

    In one pass, without a call for each: every message of a batch comes by here.
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
    """A value that a header can hold: bytes in it that are no UTF-8 are U+FFFD."""
    try:
        raw = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a half of a surrogate pair that no bytes have given
        raw = value.encode("utf-8", "surrogatepass")
    return raw.decode("utf-8", "replace")


def kept_queue_id(pairs: Mapping[str, str]) -> int:
    """The queue that a message goes to later, as the broker that keeps it noted it down."""
    return read_natural(pairs.get(REAL_QUEUE_ID, "")) or 0


def decode_properties(raw: bytes | str) -> dict[str, str]:
    """The pairs of a run. Pieces without a name or without a separator are passed over.

    A name that stands twice has its last value; a pair with an empty value is kept.
    """
    text = raw if isinstance(raw, str) else raw.decode("utf-8", "surrogateescape")
    pairs: dict[str, str] = {}
    for piece in text.split(PROPERTY_SEPARATOR):
        name, separator, value = piece.partition(NAME_VALUE_SEPARATOR)
        if name and separator:
            pairs[name] = value
    return pairs


def encode_properties(pairs: Mapping[str, str]) -> bytes:
    r"""The run of `pairs`, in their order, each with its closing \x02.

    Raises:
        MessageMalformed: a name is empty or holds a separator, a value holds \x02, or a text
            cannot be UTF-8.
    """
    for name, value in pairs.items():
        if not name or NAME_VALUE_SEPARATOR in name or PROPERTY_SEPARATOR in name:
            raise MessageMalformed(f"property name {name!r:.60}: use no \\x01, no \\x02, and text")
        if PROPERTY_SEPARATOR in value:
            raise MessageMalformed(f"property {name!r:.60}: its value may not hold \\x02")
    return properties_bytes("".join([f"{name}\x01{value}\x02" for name, value in pairs.items()]))


def edit_properties(raw: bytes, changes: Mapping[str, str], removals: Iterable[str] = ()) -> bytes:
    """The run with some pairs set and some removed, and every other byte as it was.

    Args:
        raw: the run as it came.
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
