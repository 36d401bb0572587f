"""Parses and checks the options of the data source "dledger". Pure.

The names are those of Spark's source for Kafka if the meaning is the same.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from dledger import TlsConfig
from dledger_spark.errors import OptionInvalid
from dledger_spark.log.log_range import END, MAX_PIECE_BYTES
from dledger_spark.schema import ENTRIES, MESSAGES, OF_MESSAGES, SCHEMAS

# The numbers of Spark's source for Kafka.
LATEST: Final = -1
EARLIEST: Final = -2
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}

OPTIONS: Final = (
    *("path", "paths", "bootstrap", "group", "tlsCert", "tlsKey", "tlsCa"),
    *("credentials", "maxBytesPerSecond"),
    *("table", "subscribe", "subscribePattern", "from", "to"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    *("startingOffsetsByTimestampStrategy",),
    *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger"),
    *("partitionBytes", "minPartitions"),
    *("checksums", "includeProperties", "decompress", "failOnDataLoss"),
)
# Spark (4.3) keeps one reader for a DataFrame, with the filters that came last, and used it in all
# places of a query: a union of two parts of one DataFrame had rows twice and others not at all.
_GONE: Final = "pushFilters"
_INSTEAD: Final = (
    "it gave wrong rows where a query reads a DataFrame twice: leave it out, and name what to read "
    "by startingOffsets, endingOffsets, startingTimestamp, endingTimestamp and subscribe"
)
_NAMES: Final = {name.lower(): name for name in OPTIONS}
_LIMITS: Final = (
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger"),
)
_BEGINNINGS: Final = (
    *("from", "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
)
_ENDS: Final = ("to", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
# What to do if no message is as late as a timestamp: names and default are those of Kafka's source.
_STRATEGY: Final = "startingOffsetsByTimestampStrategy"
_STRATEGIES: Final = ("error", "latest")
# Kafka's default: with minOffsetsPerTrigger a batch waits so long at most.
DEFAULT_TRIGGER_DELAY: Final = "15m"
_DURATION: Final = re.compile(r"(\d{1,12})\s*(ms|s|m|min|h|d|)", re.ASCII)
_UNIT_MS: Final = {
    **{"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
}
# Each path is searched for logs when a query begins.
MAX_PATHS: Final = 64
# A pattern is tried on each name of a topic; names have 127 characters at most.
MAX_PATTERN_CHARACTERS: Final = 1000
_HIGHEST: Final = 2**63 - 1
# A broker has some thousand topics; so users list no more.
MAX_TOPICS: Final = 10_000
# A group has fewer than twenty members.
MAX_ADDRESSES: Final = 64
# No cluster has more groups; each is asked for its state before a query begins.
MAX_GROUPS: Final = 256
_CREDENTIALS: Final = ("tlsCert", "tlsKey", "tlsCa", "credentials")
# Spaces at the ends of a path belong to it.
_PATHS: Final = ("path", *_CREDENTIALS)
_OF_NETWORK: Final = ("group", *_CREDENTIALS, "maxBytesPerSecond")


@dataclass(frozen=True, slots=True)
class Place:
    """Where to begin or end in the log of each group.

    Attributes:
        option: the option that gives the place, for errors.
        everywhere: an index, EARLIEST or LATEST, for groups that are not in `of_group`; None: the
            default.
        of_group: the same for single groups.
        time_ms: at the first entry with this store time or a later one, in milliseconds since 1970;
            None if the place is not given by time.
        time_of_group: the same for single groups.
        must_find: whether it is an error if no message is as late as the time; else the place is
            behind the last one.
    """

    option: str
    everywhere: int | None = None
    of_group: Mapping[str, int] = field(default_factory=dict)
    time_ms: int | None = None
    time_of_group: Mapping[str, int] = field(default_factory=dict)
    must_find: bool = False

    @property
    def groups(self) -> frozenset[str]:
        """The groups that it names."""
        return frozenset((*self.of_group, *self.time_of_group))

    def time_in(self, group: str | None) -> int | None:
        """Return the time for a group; None if its place is not given by time."""
        return self.time_of_group.get(group or "", self.time_ms)


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """The topics whose messages are read: those of a list, or those that match a pattern."""

    names: frozenset[str] | None = None
    pattern: str | None = None

    def of(self, topics: Iterable[str | None]) -> list[str]:
        """Return those of some topics that are chosen."""
        found = (topic for topic in topics if topic is not None)
        if self.names is not None:
            found = (topic for topic in found if topic in self.names)
        if self.pattern is not None:
            matches = re.compile(self.pattern).fullmatch
            found = (topic for topic in found if matches(topic))
        return list(found)


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The addresses ("host:port" or "name=host:port") of some members of a group."""

    group: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one query.

    Attributes:
        path: the one path, or several for errors; "" if the log is read over the network.
        paths: see `log_set.open_logs`.
        members: the groups that are read over the network; none if logs are read from a folder.
        tls: certificates for these groups; None if they do not use TLS.
        credentials: the file of the user to be there; None if they do not ask for users.
        max_bytes_per_second: the network limit of each task, or None.
        table: a name of `schema.SCHEMAS`.
        topics: only messages of these; None for all.
        topic_pattern: only messages of topics whose names match this pattern; None for all.
        first, last: see `ReadableLog.resolve`.
        starting: where to begin; None: at the first entry kept.
        ending: where to end, exclusive; None: behind the last committed entry.
        max_rows: entries in one batch of a stream, all groups together; None: no limit.
        min_rows: a batch of a stream waits for so many entries, all groups together; None: for one.
        max_delay_s: it does not wait longer.
        max_bytes: bytes of the logs in one batch of a stream; None: no limit.
        partition_bytes: see `ReadableLog.share_out`.
        min_partitions: the same; None: the number of cores of the session.
        checksums: whether the sums of entries are checked.
        include_properties: whether the table of messages has the column "properties".
        decompress: whether bodies of messages are inflated.
        fail_on_data_loss: whether missing entries are an error.
    """

    path: str
    paths: tuple[str, ...]
    members: tuple[GroupMembers, ...]
    tls: TlsConfig | None
    credentials: Path | None
    max_bytes_per_second: int | None
    table: str
    topics: frozenset[str] | None
    topic_pattern: str | None
    first: str | None
    last: str | None
    starting: Place | None
    ending: Place | None
    max_rows: int | None
    min_rows: int | None
    max_delay_s: float
    max_bytes: int | None
    partition_bytes: int
    min_partitions: int | None
    checksums: bool
    include_properties: bool
    decompress: bool
    fail_on_data_loss: bool


def read_options(options: Mapping[str, str], *, streaming: bool | None = None) -> SourceOptions:
    """Parse and check the options of a query, whose names are in any case.

    `streaming`: whether the query is a stream; None if that is unknown yet.

    Raises:
        OptionInvalid: an option is unknown or malformed, or does not fit the others.
    """
    texts = _texts(options)
    if streaming is True:
        _refuse(texts, _ENDS, "a stream has no end; read a batch, or use availableNow")
    elif streaming is False:
        _refuse(texts, _LIMITS, "it limits the batches of a stream, and this is no stream")
    for names in (_BEGINNINGS, _ENDS):
        given = [name for name in names if name in texts]
        if len(given) > 1:
            raise OptionInvalid(given[1], texts[given[1]], f"{given[0]} is given as well; use one")
    members = _members(texts)
    table = _table(texts)
    begins = "from" if streaming and "from" in texts else "startingOffsets"
    starting = _strict(texts, _place(texts, begins, "startingTimestamp"))
    ending = _place(texts, "endingOffsets", "endingTimestamp")
    max_rows, min_rows = (_limit(texts, f"{m}OffsetsPerTrigger") for m in ("max", "min"))
    if min_rows is not None and max_rows is not None and min_rows > max_rows:
        expected = f"maxOffsetsPerTrigger is {max_rows}, and no batch may have more"
        raise OptionInvalid("minOffsetsPerTrigger", texts["minOffsetsPerTrigger"], expected)
    paths = _paths(texts)
    if streaming is False:
        _refuse_word(starting, texts, LATEST, "a batch that begins there is empty")
    _refuse_word(ending, texts, EARLIEST, "a batch that ends there is empty")
    return SourceOptions(
        path=", ".join(paths),
        paths=paths,
        members=members,
        tls=_tls(texts),
        credentials=Path(texts["credentials"]) if "credentials" in texts else None,
        max_bytes_per_second=_limit(texts, "maxBytesPerSecond"),
        table=table,
        topics=_topics(texts, table),
        topic_pattern=_topic_pattern(texts, table),
        first=texts.get("from"),
        last=texts.get("to"),
        starting=starting,
        ending=ending,
        max_rows=max_rows,
        min_rows=min_rows,
        max_delay_s=_trigger_delay_s(texts),
        max_bytes=_limit(texts, "maxBytesPerTrigger"),
        partition_bytes=_limit(texts, "partitionBytes") or MAX_PIECE_BYTES,
        min_partitions=_limit(texts, "minPartitions"),
        checksums=_flag(texts, "checksums", default=True),
        include_properties=_flag(texts, "includeProperties", default=True),
        decompress=_decompress(texts, table),
        fail_on_data_loss=_flag(texts, "failOnDataLoss", default=True),
    )


def _texts(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that are not empty, under their proper names: Spark does not preserve
    case.
    """
    texts = {}
    for key, text in options.items():
        name = _NAMES.get(key.lower())
        if key.lower() == _GONE.lower():
            raise OptionInvalid(_GONE, text, _INSTEAD)
        if name is None:
            raise OptionInvalid(key, text, f"the options are {', '.join(OPTIONS)}")
        if text.strip():
            texts[name] = text if name in _PATHS else text.strip()
    return texts


def _refuse(texts: Mapping[str, str], names: tuple[str, ...], problem: str) -> None:
    for name in names:
        if name in texts:
            raise OptionInvalid(name, texts[name], problem)


def _refuse_word(place: Place | None, texts: Mapping[str, str], word: int, problem: str) -> None:
    if place is not None and word in (place.everywhere, *place.of_group.values()):
        raise OptionInvalid(place.option, texts[place.option], problem)


def _members(texts: Mapping[str, str]) -> tuple[GroupMembers, ...]:
    """Return the groups to read over the network; check that other network options fit them."""
    text = texts.get("bootstrap")
    if text is None:
        _refuse(texts, _OF_NETWORK, "it belongs to bootstrap; a folder is read without it")
        return ()
    _refuse(texts, ("path", "paths"), "bootstrap is given as well; use one")
    if text.startswith("{"):
        _refuse(texts, ("group",), "bootstrap names the groups already")
        found = [GroupMembers(group, _addresses(list_)) for group, list_ in _json_members(text)]
    elif "group" not in texts:
        raise OptionInvalid("bootstrap", text, 'name the group as well, as option "group"')
    else:
        addresses = _addresses(text)
        names = [name.strip() for name in texts["group"].split(",")]
        found = [GroupMembers(name, addresses) for name in names]
    groups = [one.group for one in found]
    if "" in groups or len(set(groups)) < len(groups) or not 1 <= len(groups) <= MAX_GROUPS:
        expected = f"give 1 to {MAX_GROUPS} names of groups with commas between them, each once"
        raise OptionInvalid("group", texts.get("group", text), expected)
    return tuple(found)


def _json(text: str) -> Any:
    """Parse JSON; None if it is malformed."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json_members(text: str) -> list[tuple[str, str]]:
    content = _json(text)
    if not isinstance(content, dict) or not all(isinstance(one, str) for one in content.values()):
        expected = 'give host:port,... or JSON by group: {"broker-a": "host:port,..."}'
        raise OptionInvalid("bootstrap", text, expected)
    return list(content.items())


def _addresses(text: str) -> tuple[str, ...]:
    addresses = tuple(address.strip() for address in text.split(","))
    if "" in addresses or len(addresses) > MAX_ADDRESSES:
        expected = f"give host:port of 1 to {MAX_ADDRESSES} members with commas between them"
        raise OptionInvalid("bootstrap", text, expected)
    return addresses


def _tls(texts: Mapping[str, str]) -> TlsConfig | None:
    given = {name: texts.get(name) for name in ("tlsCert", "tlsKey", "tlsCa")}
    if not any(given.values()):
        return None
    for name, path in given.items():
        if path is None:
            expected = (
                "TLS takes a certificate, its key and authorities: give tlsCert, tlsKey, tlsCa"
            )
            raise OptionInvalid(name, "", expected)
    # Spark's tasks run in folders of their own.
    certificate, key, authorities = (Path(os.path.abspath(p)) for p in given.values() if p)
    return TlsConfig(certificate=certificate, key=key, authorities=authorities)


def _table(texts: Mapping[str, str]) -> str:
    table = texts.get("table", ENTRIES).lower()
    if table not in SCHEMAS:
        raise OptionInvalid("table", table, f"use one of {', '.join(SCHEMAS)}")
    return table


def _topics(texts: Mapping[str, str], table: str) -> frozenset[str] | None:
    text = texts.get("subscribe")
    if text is None:
        return None
    if table not in OF_MESSAGES:
        raise OptionInvalid("subscribe", text, "only messages have topics; add table=messages")
    topics = frozenset(topic.strip() for topic in text.split(","))
    if "" in topics or len(topics) > MAX_TOPICS:
        expected = f"give 1 to {MAX_TOPICS} names of topics with commas between them"
        raise OptionInvalid("subscribe", text, expected)
    return topics


def _topic_pattern(texts: Mapping[str, str], table: str) -> str | None:
    text = texts.get("subscribePattern")
    if text is None:
        return None
    name = "subscribePattern"
    if table not in OF_MESSAGES:
        raise OptionInvalid(name, text, "only messages have topics; add table=messages")
    _refuse(texts, ("subscribe",), f"{name} is given as well; use one")
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise OptionInvalid(name, text, f"is no regular expression of Python: {error}") from None
    if len(text) > MAX_PATTERN_CHARACTERS:
        raise OptionInvalid(name, text, f"give {MAX_PATTERN_CHARACTERS} characters at most")
    return text


def _paths(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths of `load(A)`, and of `load([A, B])`, which Spark makes JSON of."""
    text = texts.get("paths")
    if text is None:
        return (texts["path"],) if "path" in texts else ()
    _refuse(texts, ("path",), "paths is given as well; use one")
    content = _json(text)
    if (
        not isinstance(content, list)
        or not 1 <= len(content) <= MAX_PATHS
        or not all(isinstance(one, str) and one for one in content)
    ):
        expected = f'give JSON of 1 to {MAX_PATHS} paths, such as ["/data/n0", "/data/n1"]'
        raise OptionInvalid("paths", text, expected)
    return tuple(content)


def _trigger_delay_s(texts: Mapping[str, str]) -> float:
    name = "maxTriggerDelay"
    if name in texts and "minOffsetsPerTrigger" not in texts:
        raise OptionInvalid(name, texts[name], "it belongs to minOffsetsPerTrigger")
    text = texts.get(name, DEFAULT_TRIGGER_DELAY)
    match = _DURATION.fullmatch(text.lower())
    if match is None:
        raise OptionInvalid(name, text, "give a time such as 30s, 15m or 1h")
    return int(match[1]) * _UNIT_MS[match[2]] / 1000


def _decompress(texts: Mapping[str, str], table: str) -> bool:
    decompress = _flag(texts, "decompress", default=False)
    if decompress and table != MESSAGES:
        raise OptionInvalid("decompress", "true", "only messages are inflated; add table=messages")
    return decompress


def _place(texts: Mapping[str, str], offsets: str, timestamp: str) -> Place | None:
    if timestamp in texts:
        time_ms = _number(texts[timestamp])
        if time_ms is None:
            raise OptionInvalid(timestamp, texts[timestamp], "give milliseconds since 1970")
        return Place(timestamp, time_ms=time_ms)
    by_group = f"{offsets}ByTimestamp"
    if by_group in texts:
        return Place(by_group, time_of_group=_times(by_group, texts[by_group]))
    text = texts.get(offsets)
    if text is None:
        return None
    place = _WORDS.get(text.lower(), _number(text))
    if place is not None:
        return Place(offsets, place)
    return Place(offsets, of_group=_by_group(offsets, text))


def _strict(texts: Mapping[str, str], place: Place | None) -> Place | None:
    """Return where to begin, with what to do if no message is as late as its time."""
    is_by_time = place is not None and (place.time_ms is not None or place.time_of_group)
    text = texts.get(_STRATEGY)
    if text is not None and text.lower() not in _STRATEGIES:
        raise OptionInvalid(_STRATEGY, text, f"use {' or '.join(_STRATEGIES)}")
    if text is not None and not is_by_time:
        raise OptionInvalid(_STRATEGY, text, "it belongs to startingTimestamp")
    if place is None or not is_by_time:
        return place
    return replace(place, must_find=(text or "error").lower() == "error")


def _times(option: str, text: str) -> dict[str, int]:
    content = _json(text)
    if not isinstance(content, dict) or not content:
        content = {"": None}
    for time_ms in content.values():
        if type(time_ms) is not int or not 0 <= time_ms <= _HIGHEST:
            expected = 'give milliseconds since 1970 by group: {"broker-a": 1764000000000}'
            raise OptionInvalid(option, text, expected)
    return content


def _by_group(option: str, text: str) -> dict[str, int]:
    expected = 'use earliest, latest, an index, or JSON such as {"broker-a": 5, "broker-b": -2}'
    content = _json(text)
    if not isinstance(content, dict) or not content:
        raise OptionInvalid(option, text, expected)
    places: dict[str, Any] = {
        group: _WORDS.get(place.lower()) if isinstance(place, str) else place
        for group, place in content.items()
    }
    for place in places.values():
        if type(place) is not int or not EARLIEST <= place <= _HIGHEST:
            raise OptionInvalid(option, text, f"{expected}; -1 is the latest, -2 the earliest")
    return places


def _number(text: str) -> int | None:
    """Parse a number from 0 to 2^63 - 1; None for any other text."""
    if not text.isascii() or not text.isdigit() or len(text) > len(str(_HIGHEST)):
        return None
    number = int(text)
    return number if number <= _HIGHEST else None


def _limit(texts: Mapping[str, str], name: str) -> int | None:
    if name not in texts:
        return None
    number = _number(texts[name])
    if not number:
        raise OptionInvalid(name, texts[name], "use a number of 1 or more")
    return number


def _flag(texts: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = texts.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise OptionInvalid(name, text, "use true or false")
    return text == "true"


assert END not in _WORDS  # `to` and `endingOffsets` are different options with different words
