"""The classes of the API, each in its three forms, and their public calls."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import dledger
import dledger_mq
from dledger import blocking, for_asyncio
from dledger_mq import blocking as mq_blocking
from dledger_mq import for_asyncio as mq_for_asyncio
from dledger_mq.admin.consumer_group import ConsumerGroup
from dledger_mq.producing.transaction import Transaction

TRIO: Final = "trio"
BLOCKING: Final = "blocking"
ASYNCIO: Final = "asyncio"


class Forms(NamedTuple):
    """A class of trio's, and what stands for it in programs without trio."""

    trio: type
    blocking: type
    asyncio: type


FORMS: Final = [
    Forms(dledger.Node, blocking.BlockingNode, for_asyncio.AsyncioNode),
    Forms(dledger.Session, blocking.BlockingSession, for_asyncio.AsyncioSession),
    Forms(dledger.RemoteLog, blocking.BlockingLog, for_asyncio.AsyncioLog),
    Forms(dledger.GroupClient, blocking.BlockingGroup, for_asyncio.AsyncioGroup),
    Forms(dledger.Host, blocking.BlockingHost, for_asyncio.AsyncioHost),
    Forms(dledger_mq.Producer, mq_blocking.BlockingProducer, mq_for_asyncio.AsyncioProducer),
    Forms(Transaction, mq_blocking.BlockingTransaction, mq_for_asyncio.AsyncioTransaction),
    Forms(
        dledger_mq.PullConsumer,
        mq_blocking.BlockingPullConsumer,
        mq_for_asyncio.AsyncioPullConsumer,
    ),
    Forms(
        dledger_mq.PushConsumer,
        mq_blocking.BlockingPushConsumer,
        mq_for_asyncio.AsyncioPushConsumer,
    ),
    Forms(
        dledger_mq.PopConsumer, mq_blocking.BlockingPopConsumer, mq_for_asyncio.AsyncioPopConsumer
    ),
    Forms(dledger_mq.Admin, mq_blocking.BlockingAdmin, mq_for_asyncio.AsyncioAdmin),
    Forms(ConsumerGroup, mq_blocking.BlockingConsumerGroup, mq_for_asyncio.AsyncioConsumerGroup),
]

# What belongs to the trio loop alone, and why.
_DRIVER = "the driver and the host of a node call it"
_BROKER = "the broker reads its own log by it"
_FUTURE = "a future is the form of a callback"
_BLOCK = "the block of the session does it"
_HOST = "`open_host` and figures of the process use it"
_TOOLS = "sessions and tools are built on it"
_DRIVEN = ("start", "stop", "closed", "told", "refused", "applied", "submit_envelopes", "tally")
_READ_BY_BROKERS = (
    *("read_bytes", "check_at", "segment_begin", "begin_position", "max_body_bytes"),
    *("disk_short", "machine_version", "machine_name"),
)
TRIO_ALONE: Final[dict[tuple[str, str], str]] = {
    **{("Node", name): _DRIVER for name in _DRIVEN},
    **{("Node", name): _BROKER for name in _READ_BY_BROKERS},
    ("Node", "state_index"): "members answer the queries of clients by it",
    ("Node", "submit"): _FUTURE,
    ("Producer", "send_nowait"): _FUTURE,
    ("Session", "keep_alive"): _BLOCK,
    ("Session", "close"): _BLOCK,
    ("RemoteLog", "ask_leader"): _TOOLS,
    ("RemoteLog", "ask_leader_long"): _TOOLS,
    **{("Host", name): _HOST for name in ("connections", "nodes", "run_node", "start", "stop")},
}

# Of those, what a user of trio may call.
CALLED_IN_TRIO: Final = {("Node", "submit"), ("Producer", "send_nowait")}


def public(of: type) -> dict[str, Any]:
    """The public methods and properties of a class."""
    return {
        name: member
        for name, member in inspect.getmembers_static(of)
        if not name.startswith("_") and (callable(member) or isinstance(member, property))
    }


def calls_of(forms: Forms, form: str) -> Iterator[str]:
    """The names of the public calls of a class in one form, and of its iteration."""
    of: type = getattr(forms, form)
    for name in public(of):
        key = (forms.trio.__name__, name)
        if form != TRIO or key not in TRIO_ALONE or key in CALLED_IN_TRIO:
            yield name
    for name in ("__iter__", "__aiter__"):
        if name in vars(of):
            yield name
