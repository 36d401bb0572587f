"""Narrows a query's entries by Spark's filters. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from dledger_spark.query.wanted import Wanted
from dledger_spark.schema import MESSAGES, TIME

_NEVER_NULL: Final = frozenset({("index",), ("topic",), ("raft_group",)})


def take_filters(
    wanted: Wanted, filters: Iterable[Filter], table: str
) -> tuple[Wanted, list[Filter]]:
    """Narrow what is read by the filters of a query, all of which must hold.

    Returns what is wanted, and the filters that Spark still has to apply to the rows.
    """
    left: list[Filter] = []
    for one in filters:
        narrowed, is_exact = _take(wanted, one, table)
        wanted = narrowed
        if not is_exact:
            left.append(one)
    return wanted, left


def _take(wanted: Wanted, one: Filter, table: str) -> tuple[Wanted, bool]:
    """Apply one filter; return whether it needs no further check of the rows."""
    match one:
        case EqualTo(("index",), int(index)) | EqualNullSafe(("index",), int(index)):
            return _within(wanted, index, index), True
        case GreaterThan(("index",), int(index)):
            return _within(wanted, index + 1, None), True
        case GreaterThanOrEqual(("index",), int(index)):
            return _within(wanted, index, None), True
        case LessThan(("index",), int(index)):
            return _within(wanted, 0, index - 1), True
        case LessThanOrEqual(("index",), int(index)):
            return _within(wanted, 0, index), True
        case EqualTo(("topic",), str(topic)) | EqualNullSafe(("topic",), str(topic)):
            return _of_topics(wanted, {topic}), table == MESSAGES
        case In(("topic",), (*topics,)) if _are_texts(topics):
            return _of_topics(wanted, set(topics)), table == MESSAGES
        case EqualTo(("raft_group",), str(group)):
            return _of_groups(wanted, {group}), True
        case In(("raft_group",), (*groups,)) if _are_texts(groups):
            return _of_groups(wanted, set(groups)), True
        case GreaterThan(("store_time",), time) | GreaterThanOrEqual(("store_time",), time):
            return _stored(wanted, _in_ms(time), None), False
        case LessThan(("store_time",), time) | LessThanOrEqual(("store_time",), time):
            return _stored(wanted, None, _in_ms(time)), False
        case EqualTo(("store_time",), time):
            return _stored(wanted, _in_ms(time), _in_ms(time)), False
        case IsNotNull(attribute):
            return wanted, attribute in _NEVER_NULL and attribute != ("raft_group",)
        case _:
            return wanted, False


def _within(wanted: Wanted, first: int, last: int | None) -> Wanted:
    if last is not None and wanted.last is not None:
        last = min(last, wanted.last)
    return replace(
        wanted,
        first=max(first, wanted.first),
        last=wanted.last if last is None else last,
    )


def _of_topics(wanted: Wanted, topics: set[str]) -> Wanted:
    known = wanted.topics
    return replace(wanted, topics=frozenset(topics if known is None else known & topics))


def _of_groups(wanted: Wanted, groups: set[str]) -> Wanted:
    known = wanted.groups
    return replace(wanted, groups=frozenset(groups if known is None else known & groups))


def _stored(wanted: Wanted, from_ms: int | None, until_ms: int | None) -> Wanted:
    """Narrow the store times, both ends included."""
    froms = [time_ms for time_ms in (from_ms, wanted.from_ms) if time_ms is not None]
    untils = [time_ms for time_ms in (until_ms, wanted.until_ms) if time_ms is not None]
    return replace(wanted, from_ms=max(froms, default=None), until_ms=min(untils, default=None))


def _in_ms(time: Any) -> int | None:
    """Return milliseconds since 1970, rounded down; None if it is no instant."""
    instant = pa.scalar(time)
    if not pa.types.is_timestamp(instant.type) or instant.type.tz is None:
        return None
    time_us: int = instant.cast(TIME).cast(pa.int64()).as_py()
    return time_us // 1000


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)
