"""Counts the messages of each topic in logs with Spark, with one task for each part of a log."""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Final, NamedTuple

from dledger_spark.log.log_range import END

# Often enough for a progress bar, and cheap.
_PROGRESS_S: Final = 0.5
_COLUMNS: Final = "raft_group string, topic string, queue int, body_size int, store_time timestamp"
_TIME: Final = "yyyy-MM-dd''T''HH:mm:ss.SSS''Z''"
_QUERY: Final = f"""
    SELECT raft_group,
           topic,
           count(DISTINCT queue),
           count(*),
           sum(body_size),
           date_format(min(store_time), '{_TIME}'),
           date_format(max(store_time), '{_TIME}')
    FROM {{messages}}
    GROUP BY raft_group, topic
    ORDER BY raft_group, topic
"""


class TopicCount(NamedTuple):
    """One topic of a log.

    Attributes:
        raft_group: the group of the log; None for a log of Java's.
        queues: the number of its queues that have messages.
        messages: the number of messages.
        body_bytes: the sum of the bodies' sizes, as stored.
        first_stored: store time of the earliest message, ISO 8601 in UTC; None if the time is out
            of range.
        last_stored: store time of the latest message.
    """

    raft_group: str | None
    topic: str
    queues: int
    messages: int
    body_bytes: int
    first_stored: str | None
    last_stored: str | None


def count_topics(
    session: Any,
    source: Mapping[str, str],
    ranges: Mapping[str | None, range],
    *,
    uncommitted: bool = False,
    on_progress: Callable[[int], None] = lambda _done: None,
) -> list[TopicCount]:
    """Return the topics among entries of logs, by group and name.

    `source` are the options of the source "dledger" that name the logs, and `ranges` the entries of
    each group. With `uncommitted`, the range of the one log goes on behind its committed entries.
    `on_progress` gets the number of tasks done now and then.
    """
    frame = session.read.format("dledger").schema(_COLUMNS).options(table="messages", **source)
    if len(ranges) == 1:  # perhaps a log of Java's, which has no name for JSON
        [entries] = ranges.values()
        end = END if uncommitted else str(entries.stop - 1)
        frame = frame.options(**{"from": str(entries.start), "to": end})
    elif uncommitted:
        frame = frame.options(to=END)
    else:
        starts = {group: entries.start for group, entries in ranges.items()}
        stops = {group: entries.stop for group, entries in ranges.items()}
        frame = frame.options(startingOffsets=json.dumps(starts), endingOffsets=json.dumps(stops))
    query = session.sql(_QUERY, messages=frame.load())
    status = session.sparkContext.statusTracker()
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(query.collect)
        try:
            while not wait([job], _PROGRESS_S).done:
                stages = map(status.getStageInfo, status.getActiveStageIds())
                on_progress(sum(stage.numCompletedTasks for stage in stages if stage is not None))
        except BaseException:
            session.sparkContext.cancelAllJobs()
            raise
    return [TopicCount(*row) for row in job.result()]
