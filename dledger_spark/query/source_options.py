"""Parses and checks the options of the data source "dledger". Pure.

The names are those of Spark's source for Kafka if the meaning is the same.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dledger import TlsConfig
from dledger_spark.errors import OptionInvalid
from dledger_spark.log.log_range import END, MAX_PIECE_BYTES
from dledger_spark.schema import ENTRIES, MESSAGES, TABLES

# The numbers of Spark's source for Kafka.
LATEST: Final = -1
EARLIEST: Final = -2
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}

OPTIONS: Final = (
    *("path", "bootstrap", "group", "tlsCert", "tlsKey", "tlsCa"),
    *("credentials", "maxBytesPerSecond"),
    *("table", "subscribe", "from", "to"),
    *("startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp"),
    *("maxOffsetsPerTrigger", "maxBytesPerTrigger"),
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
_LIMITS: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger")
_BEGINNINGS: Final = ("from", "startingOffsets", "startingTimestamp")
_ENDS: Final = ("to", "endingOffsets", "endingTimestamp")
# Enough for the cores of a laptop, unless the log is tiny.
DEFAULT_MIN_PARTITIONS: Final = 8
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
    """

    option: str
    everywhere: int | None = None
    of_group: Mapping[str, int] = field(default_factory=dict)
    time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The addresses ("host:port" or "name=host:port") of some members of a group."""

    group: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one query.

    Attributes:
        path: see `log_set.open_logs`; "" if the log is read over the network.
        members: the groups that are read over the network; none if logs are read from a folder.
        tls: certificates for these groups; None if they do not use TLS.
        credentials: the file of the user to be there; None if they do not ask for users.
        max_bytes_per_second: the network limit of each task, or None.
        table: "entries" or "messages".
        topics: only messages of these; None for all.
        first, last: see `ReadableLog.resolve`.
        starting: where to begin; None: at the first entry kept.
        ending: where to end, exclusive; None: behind the last committed entry.
        max_rows: entries in one batch of a stream, all groups together; None: no limit.
        max_bytes: bytes of the logs in one batch of a stream; None: no limit.
        partition_bytes, min_partitions: see `ReadableLog.share_out`.
        checksums: whether the sums of entries are checked.
        include_properties: whether the table of messages has the column "properties".
        decompress: whether bodies of messages are inflated.
        fail_on_data_loss: whether missing entries are an error.
    """

    path: str
    members: tuple[GroupMembers, ...]
    tls: TlsConfig | None
    credentials: Path | None
    max_bytes_per_second: int | None
    table: str
    topics: frozenset[str] | None
    first: str | None
    last: str | None
    starting: Place | None
    ending: Place | None
    max_rows: int | None
    max_bytes: int | None
    partition_bytes: int
    min_partitions: int
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
    starting = _place(texts, "startingOffsets", "startingTimestamp")
    if streaming and "from" in texts:
        starting = _place(texts, "from", "startingTimestamp")
    ending = _place(texts, "endingOffsets", "endingTimestamp")
    if streaming is False:
        _refuse_word(starting, texts, LATEST, "a batch that begins there is empty")
    _refuse_word(ending, texts, EARLIEST, "a batch that ends there is empty")
    return SourceOptions(
        path=texts.get("path", ""),
        members=members,
        tls=_tls(texts),
        credentials=Path(texts["credentials"]) if "credentials" in texts else None,
        max_bytes_per_second=_limit(texts, "maxBytesPerSecond"),
        table=table,
        topics=_topics(texts, table),
        first=texts.get("from"),
        last=texts.get("to"),
        starting=starting,
        ending=ending,
        max_rows=_limit(texts, "maxOffsetsPerTrigger"),
        max_bytes=_limit(texts, "maxBytesPerTrigger"),
        partition_bytes=_limit(texts, "partitionBytes") or MAX_PIECE_BYTES,
        min_partitions=_limit(texts, "minPartitions") or DEFAULT_MIN_PARTITIONS,
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
    _refuse(texts, ("path",), "bootstrap is given as well; use one")
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
    if table not in TABLES:
        raise OptionInvalid("table", table, f"use one of {', '.join(TABLES)}")
    return table


def _topics(texts: Mapping[str, str], table: str) -> frozenset[str] | None:
    text = texts.get("subscribe")
    if text is None:
        return None
    if table != MESSAGES:
        raise OptionInvalid("subscribe", text, "only messages have topics; add table=messages")
    topics = frozenset(topic.strip() for topic in text.split(","))
    if "" in topics or len(topics) > MAX_TOPICS:
        expected = f"give 1 to {MAX_TOPICS} names of topics with commas between them"
        raise OptionInvalid("subscribe", text, expected)
    return topics


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
    text = texts.get(offsets)
    if text is None:
        return None
    place = _WORDS.get(text.lower(), _number(text))
    if place is not None:
        return Place(offsets, place)
    return Place(offsets, of_group=_by_group(offsets, text))


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
