"""Counts the messages of each topic in a log with Spark, with a task for each part of the log."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

_COLUMNS: Final = "topic string, queue int, body_size int, store_time timestamp"
_TIME: Final = "yyyy-MM-dd''T''HH:mm:ss.SSS''Z''"
_QUERY: Final = f"""
    SELECT topic,
           count(DISTINCT queue),
           count(*),
           sum(body_size),
           date_format(min(store_time), '{_TIME}'),
           date_format(max(store_time), '{_TIME}')
    FROM {{messages}}
    GROUP BY topic
    ORDER BY topic
"""


class TopicCount(NamedTuple):
    """One topic's share of a log.

    Attributes:
        topic: its name.
        queues: number of its message queues that have messages.
        messages: number of messages.
        body_bytes: sum of the bodies' sizes, as stored.
        first_stored: store time of the earliest message, ISO 8601 in UTC; None if no time can be
            shown.
        last_stored: the same of the latest message.
    """

    topic: str
    queues: int
    messages: int
    body_bytes: int
    first_stored: str | None
    last_stored: str | None


def count_topics(
    session: Any,
    path: str,
    first: int,
    last: int | str,
    *,
    checksums: bool = True,
    fail_on_data_loss: bool = True,
) -> list[TopicCount]:
    """The topics among the entries first..last ("end": all, committed or not), by name."""
    messages = (
        session.read.format("dledger")
        .schema(_COLUMNS)
        .options(table="messages", checksums=str(checksums).lower())
        .options(failOnDataLoss=str(fail_on_data_loss).lower())
        .options(**{"from": str(first), "to": str(last)})
        .load(path)
    )
    return [TopicCount(*row) for row in session.sql(_QUERY, messages=messages).collect()]
