"""What ends an object by itself is told at once: in the log, by waiting calls, and by loops."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing

from dledger_mq import (
    Admin,
    ClientClosed,
    Message,
    PopConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    blocking,
    for_asyncio,
)
from dledger_mq.admin.consumer_group import ConsumerGroup
from dledger_mq.connection.lifetime import Background, Lifetime, during_block
from remoting.net.client import RemotingClient
from remoting.net.errors import ConnectFailed
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.bare_call import bare
from tests.dledger_mq.test_mq_bridges import Cluster, cluster

__all__ = ["cluster"]

ENOUGH_S = 30


async def listen(_messages: list[ReceivedMessage]) -> None:
    raise AssertionError("there are no messages")


def producer(cluster: Cluster) -> Producer:
    return Producer("g", nameservers=cluster.names.address, timeout_s=ENOUGH_S)


def push(cluster: Cluster) -> PushConsumer:
    return PushConsumer("g", "T", listen, nameservers=cluster.names.address)


def loop(cluster: Cluster) -> PushConsumer:
    return PushConsumer("g", "T", nameservers=cluster.names.address)


def pop(cluster: Cluster) -> PopConsumer:
    return PopConsumer("g", "T", listen, nameservers=cluster.names.address)


def pull(cluster: Cluster) -> PullConsumer:
    return PullConsumer("g", nameservers=cluster.names.address)


def admin(cluster: Cluster) -> Admin:
    return Admin(nameservers=cluster.names.address)


# Each kind; what opens it in the bridges; and a call that waits while no broker answers.
KINDS: list[tuple[Callable[[Cluster], Any], str, Callable[[Any], Any]]] = [
    (producer, "open_producer", lambda opened: opened.send(Message("T", b"x"))),
    (producer, "open_producer", lambda opened: opened.ask(Message("T", b"x"))),
    (push, "open_push_consumer", lambda opened: opened.ready()),
    (loop, "open_push_consumer", lambda opened: opened.ready()),
    (loop, "open_push_consumer", iter),
    (pop, "open_pop_consumer", lambda opened: opened.ready()),
    (pull, "open_pull_consumer", lambda opened: opened.queues("T")),
    (admin, "open_admin", lambda opened: opened.topics()),
]
NAMES = ["send", "ask", "push", "loop", "next", "pop", "pull", "admin"]


class DiskGone(Exception):
    """What ends the object."""


async def break_down() -> None:
    raise DiskGone("the disk is gone")


class Backgrounds:
    """What runs the tasks of the objects that a test opens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all: list[Background] = []
        enter = Background.__aenter__

        async def entered(background: Background) -> Background:
            self.all.append(background)
            return await enter(background)

        monkeypatch.setattr(Background, "__aenter__", entered)


@pytest.fixture
def backgrounds(monkeypatch: pytest.MonkeyPatch) -> Backgrounds:
    return Backgrounds(monkeypatch)


@pytest.fixture
def silent(cluster: Cluster) -> Cluster:
    """A cluster that answers nothing."""
    silence: dict[int, Any] = dict.fromkeys(RequestCode, lambda _connection, _command: None)
    cluster.do(lambda: cluster.names.answers.update(silence))
    cluster.do(lambda: cluster.broker.answers.update(silence))
    return cluster


def error_of(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except BaseException as error:
        return error
    return None


def causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]


@pytest.mark.parametrize("which", [0, -1], ids=["client", "own"])
@pytest.mark.parametrize(("make", "form", "call"), KINDS, ids=NAMES)
def test_by_plain_calls(
    silent: Cluster,
    backgrounds: Backgrounds,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[Cluster], Any],
    form: str,
    call: Callable[[Any], Any],
    which: int,
) -> None:
    outcome: Future[BaseException | None] = Future()

    def use(opened: Any) -> None:
        found = call(opened)
        if call is iter:
            next(found)

    def wait(opened: Any) -> None:
        outcome.set_result(error_of(lambda: use(opened)))

    first: BaseException | None = None
    later: BaseException | None = None
    lines: list[str] = []

    def run() -> None:
        nonlocal first, later
        with getattr(blocking, form)(make(silent)) as opened:
            threading.Thread(target=wait, args=(opened,), daemon=True).start()
            with suppress(TimeoutError):
                outcome.result(0.1)
            opened._loop.soon(lambda: backgrounds.all[which].start_soon(break_down))
            first = outcome.result(ENOUGH_S)
            lines[:] = told(caplog)
            later = error_of(lambda: use(opened))

    end = error_of(run)
    assert any(isinstance(one, DiskGone) for one in causes(first)), repr(first)
    assert len(lines) == 1
    assert "ends by an error" in lines[0]
    assert isinstance(later, ClientClosed), repr(later)
    assert isinstance(later.__cause__, DiskGone)
    assert "has ended by an error: DiskGone('the disk is gone')" in str(later)
    assert isinstance(end, BaseExceptionGroup)
    assert told(caplog) == lines, "it is told once"


@pytest.mark.parametrize(("make", "form", "call"), KINDS, ids=NAMES)
def test_in_asyncio(
    silent: Cluster,
    backgrounds: Backgrounds,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[Cluster], Any],
    form: str,
    call: Callable[[Any], Any],
) -> None:
    async def run() -> None:
        async with getattr(for_asyncio, form)(make(silent)) as opened:
            opened._loop.soon(lambda: backgrounds.all[-1].start_soon(break_down))
            if call is iter:
                async for _message in opened:
                    raise AssertionError("there is no message")
            else:
                await call(opened)

    error = error_of(lambda: asyncio.run(asyncio.wait_for(run(), ENOUGH_S)))
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, DiskGone)
    assert len(told(caplog)) == 1


@pytest.mark.parametrize(("make", "form", "call"), KINDS, ids=NAMES)
def test_in_trio(
    silent: Cluster,
    backgrounds: Backgrounds,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[Cluster], Any],
    form: str,
    call: Callable[[Any], Any],
) -> None:
    async def run() -> None:
        with trio.fail_after(ENOUGH_S):
            async with make(silent) as opened:
                backgrounds.all[-1].start_soon(break_down)
                if call is iter:
                    async for _message in opened:
                        raise AssertionError("there is no message")
                else:
                    await call(opened)

    error = error_of(lambda: trio.run(run))
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, DiskGone)
    assert len(told(caplog)) == 1


def test_a_wait_in_another_task_ends_with_the_block(silent: Cluster) -> None:
    """No call waits for what will never come."""

    async def run() -> None:
        for make, _form, call in KINDS[2:4] + KINDS[5:6]:
            errors: list[BaseException] = []

            async def wait(consumer: Any, call: Callable[[Any], Any] = call) -> None:
                with pytest.raises(ClientClosed) as caught:
                    await call(consumer)
                errors.append(caught.value)  # noqa: B023

            with trio.fail_after(ENOUGH_S):
                async with trio.open_nursery() as nursery, make(silent) as consumer:
                    nursery.start_soon(wait, consumer)
                    await trio.testing.wait_all_tasks_blocked(0.01)
            assert [one.__cause__ for one in errors] == [None]

    trio.run(run)


# Sends wait for their own outcomes, which the end of the block decides; a loop gives back what it
# has, or does nothing.
SENDS = {"send", "send_many", "send_batch", "begin_transaction", "give_back"}


def test_every_call_that_waits_ends_with_its_object() -> None:
    unguarded = [
        f"{owner.__name__}.{name}"
        for owner in (Producer, PushConsumer, PopConsumer, PullConsumer, Admin, ConsumerGroup)
        for name, method in ((name, bare(member)) for name, member in vars(owner).items())
        if inspect.iscoroutinefunction(method)
        and not name.startswith("_")
        and name not in SENDS
        and not hasattr(method, "__wrapped__")
    ]
    assert not unguarded


async def test_a_failure_ends_waits_before_the_block_has_ended() -> None:
    """The end of a block may take its time: a call in a thread is waited for."""
    client = Lifetime("client", "Client", "open_admin")
    user = Lifetime("consumer", "PushConsumer", "open_push_consumer", client=client)
    client.open()
    user.open()

    class Waiting:
        def __init__(self, lifetime: Lifetime) -> None:
            self._lifetime = lifetime

        @during_block
        async def wait(self, failing: Lifetime) -> None:
            failing.fail(DiskGone("first"))
            await trio.sleep_forever()

    for failing in (user, client):
        with trio.fail_after(ENOUGH_S), pytest.raises(ClientClosed) as caught:
            await Waiting(user).wait(failing)
        assert isinstance(caught.value.__cause__, DiskGone)
        user = Lifetime("consumer", "PushConsumer", "open_push_consumer", client=client)
        user.open()
    cancelled = Lifetime("client", "Client", "open_admin")
    cancelled.open()
    with trio.move_on_after(0):
        try:
            await trio.sleep_forever()
        except trio.Cancelled as error:
            cancelled.fail(error)
            cancelled.fail(BaseExceptionGroup("", [error]))
            raise
    cancelled.check()


async def test_a_call_that_finds_its_client_closed_is_told_of_the_end_of_its_block(
    nursery: trio.Nursery,
) -> None:
    remoting = RemotingClient(nursery)
    remoting.close()

    class Asking:
        def __init__(self) -> None:
            self._lifetime = Lifetime("admin", "Admin", "open_admin")

        @during_block
        async def ask(self, ends: bool) -> None:
            if ends:
                self._lifetime.close()
            await remoting.request("127.0.0.1:1", Command(0))

    asking = Asking()
    asking._lifetime.open()
    with pytest.raises(ConnectFailed):
        await asking.ask(ends=False)
    with pytest.raises(ClientClosed):
        await asking.ask(ends=True)
