"""Attributes of topics and consumer groups: names with values, as RocketMQ 5 has them."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from broker.errors import RequestRefused
from broker.topics.names import check_topic_name
from remoting.wire.field_values import read_int64

# RocketMQ knows a handful. Each registration with a name server lists those of topics.
MAX_ATTRIBUTES: Final = 16
MAX_ATTRIBUTE_CHARACTERS: Final = 64

MESSAGE_TYPE: Final = "message.type"
PRIORITY_TYPE: Final = "PRIORITY"
LITE_TYPE: Final = "LITE"

# How many minutes a lite topic is kept after its last message; -1 for ever.
LITE_EXPIRATION: Final = "lite.topic.expiration"
_MAX_EXPIRATION_MINUTES: Final = 30 * 24 * 60

# The parent of the lite topics that a group reads; the only value that may be long.
LITE_BIND_TOPIC: Final = "lite.bind.topic"

_MAX_INT64: Final = (1 << 63) - 1


class Words(NamedTuple):
    """An attribute that has one of these values.

    `why`: the reason why others are not supported.
    """

    words: tuple[str, ...]
    why: str = "there are no others"

    def wrong(self, value: str) -> str | None:
        """Return what is wrong with a value, and what to give; None if nothing is."""
        return None if value in self.words else f"{self.why}: give " + " or ".join(self.words)


class Range(NamedTuple):
    """An attribute that is a whole number."""

    least: int
    most: int

    def wrong(self, value: str) -> str | None:
        number = read_int64(value)
        is_right = number is not None and self.least <= number <= self.most
        return None if is_right else f"give a whole number from {self.least} to {self.most}"


class TopicName(NamedTuple):
    """An attribute that names a topic."""

    def wrong(self, value: str) -> str | None:
        try:
            check_topic_name(value)
        except RequestRefused as refusal:
            return refusal.remark
        return None


Values: TypeAlias = Words | Range | TopicName

BOOLEAN: Final = Words(("true", "false"))
ANY_COUNT: Final = _MAX_INT64

TOPIC_ATTRIBUTES: Final[Mapping[str, Values]] = {
    MESSAGE_TYPE: Words(
        (
            "NORMAL",
            "FIFO",
            "DELAY",
            "TRANSACTION",
            "MIXED",
            "UNSPECIFIED",
            PRIORITY_TYPE,
            LITE_TYPE,
        ),
        "there are no other types",
    ),
    # With BatchCQ RocketMQ writes one unit for each batch instead of each message. Offsets and
    # pulls are the same, so here it has no effect.
    "queue.type": Words(("SimpleCQ", "BatchCQ"), "there are no other queues"),
    "cleanup.policy": Words(("DELETE",), "messages are dropped by their age only"),
    "reserve.time": Words(("-1",), "all topics are kept for as long as the broker says"),
    LITE_EXPIRATION: Range(-1, _MAX_EXPIRATION_MINUTES),
}


def check_attributes(
    owner: str, attributes: Mapping[str, str], known: Mapping[str, Values]
) -> None:
    """Raise RequestRefused (29) for an attribute that is not known, or has another value.

    A topic's message type is stored for clients that ask for it, but brokers accept every message:
    as in RocketMQ, where only the proxy compares the two. `owner` is as "topic orders", for the
    text of the refusal.
    """
    texts = [*attributes, *(value for name, value in attributes.items() if name != LITE_BIND_TOPIC)]
    if len(attributes) > MAX_ATTRIBUTES or any(
        len(text) > MAX_ATTRIBUTE_CHARACTERS or not text.isprintable() for text in texts
    ):
        raise RequestRefused.invalid(
            f"attributes of {owner}: at most {MAX_ATTRIBUTES}, each name and value "
            f"{MAX_ATTRIBUTE_CHARACTERS} printable characters"
        )
    for name, value in attributes.items():
        if name not in known:
            raise RequestRefused.invalid(
                f"{owner}: unsupported key {name!r:.80}: give " + ", ".join(known)
            )
        wrong = known[name].wrong(value)
        if wrong is not None:
            raise RequestRefused.invalid(f"{owner}: {name}={value:.80} is not supported, {wrong}")


def changed_attributes(now: Mapping[str, str], changes: Iterable[str]) -> dict[str, str]:
    """Return attributes after changes: "+name=value" sets one, "-name" removes one.

    Raises RequestRefused (29): a change of another form.
    """
    attributes = dict(now)
    for change in changes:
        name, separator, value = change[1:].partition("=")
        if not change.strip():
            continue
        if change[0] == "+" and name and separator:
            attributes[name] = value
        elif change[0] == "-" and name and not separator:
            attributes.pop(name, None)
        else:
            raise RequestRefused.invalid(
                f"attributes={change!r:.60}: give +name=value or -name, with commas between"
            )
    return attributes
