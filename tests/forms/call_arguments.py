"""How the matrix calls what it finds: a value for each parameter that a public call needs."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

import pytest

import dledger
from dledger_mq import Message
from remoting.bodies.assignment import RequestMode
from tests.forms.form_classes import Forms
from tests.forms.real_servers import TOPIC, Servers, machine, node_config

# Told the servers and the object that is called.
Value = Callable[[Servers, Any], object]

# An index that no log here reaches: what waits for it waits until it is stopped.
NEVER: Final = 10**9

# The time that calls get that take one: shorter than the matrix waits for them.
CALL_S: Final = 0.5


def constant(value: object) -> Value:
    return lambda _servers, _called: value


def message(_servers: Servers, _called: object) -> Message:
    return Message(TOPIC, b"asked")


_numbers = itertools.count()


async def answer(_inner: object) -> int:
    return 1


def queue_of(servers: Servers, _called: object) -> object:
    return servers.sent.queue


def of_trio(called: Any) -> Any:
    return getattr(called, "_inner", called)


def member_of_host(servers: Servers, called: Any) -> dledger.NodeConfig:
    host = of_trio(called)
    number = next(_numbers)
    folder = servers.folder / f"hosted-{number}"
    return node_config(folder, f"hosted-{number}", host.config.address)


# By the parameter's name; of one call alone by "Class.call(name)", with the class of trio's.
VALUES: Final[dict[str, Value]] = {
    "asked": lambda servers, _called: servers.received,
    "bodies": constant([b"1", b"2"]),
    "body": constant(b"1"),
    "call": constant(answer),
    "callback": constant(lambda _outcome: None),
    "changes": constant([]),
    "client_id": constant("nobody"),
    "config": lambda _servers, called: of_trio(called).config,
    "done": constant(lambda _outcome: None),
    "first": constant(1),
    "group": constant("readers"),
    "index": constant(1),
    "key": constant("k"),
    "look": constant(lambda: 1),
    "machine": lambda _servers, _called: machine(),
    "make": constant(lambda _inner: nullcontext(1)),
    "max_bytes": constant(1 << 16),
    "max_lag_s": constant(60.0),
    "message": message,
    "message_id": lambda servers, _called: servers.sent.message_id,
    "messages": lambda servers, _called: [Message(TOPIC, b"1"), Message(TOPIC, b"2")],
    "mode": constant(RequestMode(TOPIC, "readers", "PULL", 0)),
    "name": constant("TOPIC_PUT_NUMS"),
    "node_id": constant("n0"),
    "offset": constant(0),
    "offset_message_id": lambda servers, _called: servers.sent.offset_message_id,
    "queue": queue_of,
    "result": lambda servers, _called: servers.sent,
    "target": constant("n0"),
    "timeout_s": constant(CALL_S),
    "timestamp_ms": constant(0),
    "topic": constant(TOPIC),
    "values": constant({}),
    "wait_s": constant(0.01),
    "Admin.delete_topic(topic)": constant("another"),
    "Admin.group(name)": constant("readers"),
    "ConsumerGroup.clone_to(target)": constant("others"),
    "GroupClient.query(name)": constant("sum"),
    "Host.open_node(config)": member_of_host,
    "RemoteLog.query(name)": constant("sum"),
    "RemoteLog.query_soon(name)": constant("sum"),
}

# Where a call can wait for what never comes, it is given these.
WAITING: Final[dict[str, Value]] = {
    "after": constant(NEVER),
    "first": constant(NEVER),
    "index": constant(NEVER),
    "start": constant(NEVER),
    "wait_s": constant(60.0),
}

# Given although they have a default: the time that a call may take.
_LIMITS: Final = ("timeout_s",)


def arguments(
    forms: Forms, called: object, name: str, servers: Servers, *, waiting: bool
) -> partial[Any]:
    """A call with what it needs. Fails the test where that is not known."""
    method = getattr(called, name)
    named: dict[str, object] = {}
    for one in inspect.signature(method).parameters.values():
        if one.kind is one.VAR_POSITIONAL:
            continue
        of_this_call = f"{forms.trio.__name__}.{name}({one.name})"
        value = VALUES.get(of_this_call) or VALUES.get(one.name)
        if waiting and one.name in WAITING:
            value = WAITING[one.name]
        elif one.default is not one.empty and one.name not in _LIMITS:
            continue
        if value is None:
            pytest.fail(
                f"say how to call {forms.trio.__name__}.{name}: give {of_this_call!r} a value in "
                f"{__name__}"
            )
        named[one.name] = value(servers, called)
    return partial(method, **named)
