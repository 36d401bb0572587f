"""What the trio form of an object has, its blocking and its asyncio form have."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

import dledger
import dledger_mq
from dledger import blocking, for_asyncio
from dledger.loop_thread import LoopThread
from dledger_mq import blocking as mq_blocking
from dledger_mq import for_asyncio as mq_for_asyncio
from dledger_mq.consumer_group import ConsumerGroup
from dledger_mq.transaction import Transaction

# The trio class, and its two forms.
FORMS: list[tuple[type, type, type]] = [
    (dledger.Node, blocking.BlockingNode, for_asyncio.AsyncioNode),
    (dledger.Session, blocking.BlockingSession, for_asyncio.AsyncioSession),
    (dledger.RemoteLog, blocking.BlockingLog, for_asyncio.AsyncioLog),
    (dledger.GroupClient, blocking.BlockingGroup, for_asyncio.AsyncioGroup),
    (dledger.Host, blocking.BlockingHost, for_asyncio.AsyncioHost),
    (dledger_mq.Producer, mq_blocking.BlockingProducer, mq_for_asyncio.AsyncioProducer),
    (Transaction, mq_blocking.BlockingTransaction, mq_for_asyncio.AsyncioTransaction),
    (
        dledger_mq.PullConsumer,
        mq_blocking.BlockingPullConsumer,
        mq_for_asyncio.AsyncioPullConsumer,
    ),
    (
        dledger_mq.PushConsumer,
        mq_blocking.BlockingPushConsumer,
        mq_for_asyncio.AsyncioPushConsumer,
    ),
    (dledger_mq.PopConsumer, mq_blocking.BlockingPopConsumer, mq_for_asyncio.AsyncioPopConsumer),
    (dledger_mq.Admin, mq_blocking.BlockingAdmin, mq_for_asyncio.AsyncioAdmin),
    (ConsumerGroup, mq_blocking.BlockingConsumerGroup, mq_for_asyncio.AsyncioConsumerGroup),
]

# What belongs to the trio loop alone, and why.
_DRIVER = "the driver and the host of a node call it"
_BROKER = "the broker reads its own log by it"
_FUTURE = "a future is the form of a callback"
TRIO_ALONE: dict[tuple[str, str], str] = {
    **dict.fromkeys(
        [
            ("Node", name)
            for name in (
                *("start", "stop", "closed", "turned", "refused", "applied"),
                *("submit_envelopes", "tally"),
            )
        ],
        _DRIVER,
    ),
    **dict.fromkeys(
        [
            ("Node", name)
            for name in (
                *("read_bytes", "check_at", "segment_begin", "begin_position", "max_body_bytes"),
                *("disk_short", "machine_version", "machine_name"),
            )
        ],
        _BROKER,
    ),
    ("Node", "state_index"): "members answer the queries of clients by it",
    ("Node", "submit"): _FUTURE,
    ("Producer", "send_nowait"): _FUTURE,
    ("Session", "keep_alive"): "the block of the session does it",
    ("Session", "close"): "the block of the session does it",
    ("RemoteLog", "ask_leader"): "sessions and tools are built on it",
    ("RemoteLog", "ask_leader_long"): "sessions and tools are built on it",
    **dict.fromkeys(
        [("Host", name) for name in ("connections", "nodes", "run_node", "start", "stop")],
        "`open_host` and figures of the process use it",
    ),
}

# Parameters that a form has in another way: `read` takes what to look at, and a wait of a thread
# may have a limit.
MORE = {"look", "timeout_s"}


def public(of: type) -> dict[str, Any]:
    return {
        name: member
        for name, member in vars(of).items()
        if not name.startswith("_") and (callable(member) or isinstance(member, property))
    }


@pytest.mark.parametrize(("trio_form", "plain", "in_asyncio"), FORMS)
def test_each_form_has_the_methods_and_parameters_of_the_trio_class(
    trio_form: type, plain: type, in_asyncio: type
) -> None:
    for name, member in public(trio_form).items():
        if (trio_form.__name__, name) in TRIO_ALONE:
            continue
        for form in (plain, in_asyncio):
            mine = public(form).get(name)
            assert mine is not None, f"{form.__name__} lacks {name}"
            if isinstance(member, property):
                assert isinstance(mine, property), f"{form.__name__}.{name}"
                continue
            assert without_more(mine) == without_more(member), f"{form.__name__}.{name}"


def without_more(method: Callable[..., object]) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(method).parameters
    return [
        (one.name, one.kind, one.default)
        for one in list(parameters.values())[1:]
        if one.name not in MORE
    ]


def test_what_belongs_to_trio_alone_is_there() -> None:
    known = {(trio_form.__name__, name) for trio_form, _, _ in FORMS for name in public(trio_form)}
    assert set(TRIO_ALONE) <= known


@pytest.mark.parametrize(("trio_form", "plain", "in_asyncio"), FORMS)
def test_what_one_bridge_has_the_other_has(trio_form: type, plain: type, in_asyncio: type) -> None:
    # A coroutine needs no future beside it, and is no wait of a thread.
    mine = {name for name in public(plain) if not name.endswith("_soon")}
    assert mine == set(public(in_asyncio))


@pytest.mark.parametrize(("trio_form", "plain", "in_asyncio"), FORMS)
def test_calls_of_asyncio_are_coroutines_and_plain_ones_are_not(
    trio_form: type, plain: type, in_asyncio: type
) -> None:
    for name, member in public(trio_form).items():
        if inspect.iscoroutinefunction(member) and name in public(in_asyncio):
            assert inspect.iscoroutinefunction(public(in_asyncio)[name]), name
            assert not inspect.iscoroutinefunction(public(plain)[name]), name


# --- each call, where nothing can answer it -------------------------------------------------------

# They touch nothing but the object, or nothing until something else was called.
TOUCHES_NO_LOOP = {"leave_open", "group", "acknowledge", "give_back", "tail_soon", "wait"}


@pytest.fixture
def loop() -> Iterator[LoopThread[None]]:
    made: LoopThread[None] = LoopThread(nullcontext, "forms")
    made.open()
    yield made
    made.close()


def anything(*_: object) -> None:
    """Stands for an argument, which no call comes to look at."""


# What some calls look at before they ask their loop.
MESSAGE = dledger_mq.Message("T", b"")
SOMETHING: dict[str, object] = {"bodies": [b"x"], "message": MESSAGE, "messages": [MESSAGE]}


def is_positional(parameter: inspect.Parameter) -> bool:
    return parameter.kind is not parameter.KEYWORD_ONLY


def form_over(loop: LoopThread[None], trio_form: type, form: type) -> Any:
    inner: Any = object.__new__(trio_form)
    if trio_form in (dledger.Session, ConsumerGroup):
        inner.id = inner.name = "x"
    return form(loop, inner)


def calls_of(form: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each public method, with something for what it needs."""
    for name, member in public(type(form)).items():
        if isinstance(member, property) or name in TOUCHES_NO_LOOP:
            continue
        method = getattr(form, name)
        needed = [
            one for one in inspect.signature(method).parameters.values() if one.default is one.empty
        ]
        args: list[object] = [
            SOMETHING.get(one.name, anything) for one in needed if is_positional(one)
        ]
        named: dict[str, object] = {one.name: anything for one in needed if not is_positional(one)}
        yield name, partial(begun, method, args, named)


def begun(method: Callable[..., Any], args: list[object], named: dict[str, object]) -> Any:
    """The result of a call: of what is a block or an iterator, the result of its first step."""
    result = method(*args, **named)
    if hasattr(result, "__enter__"):
        return result.__enter__()
    if hasattr(result, "__aenter__"):
        return result.__aenter__()
    if hasattr(result, "__next__"):
        return next(result)
    if hasattr(result, "__anext__"):
        return anext(result)
    return result


def outcome_of(call: Callable[[], Any]) -> BaseException | None:
    """What a call raises, or the future or coroutine that it returns."""
    try:
        result = call()
        if isinstance(result, Future):
            return result.exception(10)
        if inspect.isawaitable(result):
            asyncio.run(finished(result))
    except Exception as error:
        return error
    return None


async def finished(call: Awaitable[object]) -> None:
    await asyncio.wait_for(call, 10)


@pytest.mark.parametrize(("trio_form", "plain", "in_asyncio"), FORMS)
def test_each_call_in_a_forked_process_raises_at_once(
    trio_form: type,
    plain: type,
    in_asyncio: type,
    loop: LoopThread[None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forms = [form_over(loop, trio_form, plain), form_over(loop, trio_form, in_asyncio)]
    with monkeypatch.context() as forked:
        forked.setattr("dledger.loop_thread.os.getpid", lambda: 1)
        for form in forms:
            for name, call in calls_of(form):
                error = outcome_of(call)
                assert isinstance(error, blocking.CallMisplaced), (type(form), name, error)
                assert "fork" in str(error)


@pytest.mark.parametrize(("trio_form", "plain", "in_asyncio"), FORMS)
def test_each_call_behind_the_end_raises_at_once(
    trio_form: type, plain: type, in_asyncio: type
) -> None:
    loop: LoopThread[None] = LoopThread(nullcontext, "forms")
    loop.open()
    forms = [form_over(loop, trio_form, plain), form_over(loop, trio_form, in_asyncio)]
    loop.close()
    for form in forms:
        for name, call in calls_of(form):
            error = outcome_of(call)
            assert isinstance(error, dledger.NodeClosing), (type(form), name, error)


@pytest.mark.parametrize(("trio_form", "plain"), [forms[:2] for forms in FORMS])
def test_each_call_that_would_wait_for_itself_raises_at_once(
    trio_form: type, plain: type, loop: LoopThread[None]
) -> None:
    form = form_over(loop, trio_form, plain)
    for name, call in calls_of(form):
        if name.endswith("_soon"):
            continue
        told: Future[BaseException | None] = Future()
        loop.soon(lambda call=call, told=told: told.set_result(outcome_of(call)))  # type: ignore[misc]
        error = told.result(10)
        assert isinstance(error, blocking.CallMisplaced), (name, error)
        assert "its loop" in str(error)
