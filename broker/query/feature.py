"""Queries by key (12). By position (33): `broker.admin`; by time (29): `broker.pulls`."""

import os
from datetime import UTC, datetime

from broker.messages.state import MESSAGES
from broker.query.indexing import KeyIndexing
from broker.query.processor import QueryProcessor
from broker.query.searches import MAX_WAITING, Searches
from broker.query.tasks import IndexTasks
from broker.serving.member import MEMBER
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.store.key_index import KeyIndex
from broker.store.message_reader import MESSAGE_READER
from broker.topics.needs import READS
from remoting.wire.codes import RequestCode


def _name_of(time_ms: int) -> str:
    """Name a file of the index as RocketMQ does, by a time of 17 digits, here in UTC."""
    begin = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{begin:%Y%m%d%H%M%S}{time_ms % 1000:03d}"


def service(parts: Parts) -> Service:
    member, messages = parts[MEMBER], parts.state[MESSAGES]
    index = KeyIndex(os.fspath(parts.config.directory / "index"), _name_of)
    indexing = KeyIndexing(parts.state, member.machine.queues, parts.log, index)
    searches = Searches(parts.state, index, parts[MESSAGE_READER])
    tasks = IndexTasks(index, indexing, searches, member, messages)
    processor = QueryProcessor(parts, searches)

    def figures() -> dict[str, str]:
        return {
            "dledgerKeyIndexBehindBytes": str(indexing.behind_bytes),
            "queryThreadPoolQueueCapacity": str(MAX_WAITING),
            "queryThreadPoolQueueSize": str(len(searches.waiting)),
        }

    return Service(
        handlers={RequestCode.QUERY_MESSAGE: Handler(processor.query, READS, confirmed=True)},
        end_term=searches.end_term,
        dropped=searches.drop,
        figures=figures,
        tasks=(tasks.keep, tasks.answer),
    )
