"""What all connections of a server hold of requests, and of answers, is bounded together."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from proxy.http2.call import Call
from proxy.http2.frames import (
    PREFACE,
    FrameType,
    Setting,
    reset_frame,
    settings_frame,
    window_update_frame,
)
from proxy.http2.held_by_calls import HeldByCalls
from proxy.http2.limits import Limits
from proxy.http2.status import Status
from tests.proxy.http2.peer import CALL, data, headers, message, request
from tests.proxy.http2.served import Client, connected, echo

LIMITS = Limits(stream_window_bytes=20_000)
PART = message(bytes(100_000))[:15_000]
# More than the limit's half is held by four parts, and more than the limit by seven.
LIMIT_BYTES = 100_000


def begun(*stream_ids: int) -> bytes:
    """Requests that go on after a first part."""
    return b"".join([headers(each) + data(each, PART) for each in stream_ids])


def windows(client: Client) -> dict[int, int]:
    """What each stream has got of windows."""
    return {
        each.stream_id: each.number
        for each in client.kinds(FrameType.WINDOW_UPDATE)
        if each.stream_id
    }


async def test_incomplete_messages_get_no_window_above_half_of_the_limit(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    held = HeldByCalls(LIMIT_BYTES)
    first, second = [await connected(nursery, echo, LIMITS, held=held) for _ in range(2)]
    await first.send(begun(1, 3, 5))
    assert windows(first) == {1: 15_000, 3: 15_000, 5: 15_000}
    await second.send(begun(1))
    assert windows(second) == {}
    assert held.total_bytes == 60_000
    await second.send(request(3, bytes(10_000)))
    assert second.body(3) == message(bytes(10_000))
    await first.send(reset_frame(3, 8))
    assert windows(second) == {1: 15_000}
    await first.close()
    await second.close()
    assert held.total_bytes == 0


async def test_the_connection_with_the_oldest_progress_makes_room(
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = HeldByCalls(LIMIT_BYTES)
    oldest, newer, other = [await connected(nursery, echo, LIMITS, held=held) for _ in range(3)]
    await oldest.send(begun(1, 3))
    await newer.send(begun(1, 3))
    # Messages that are complete are no progress of those that are not.
    await oldest.send(request(5, b"whole"))
    await newer.send(begun(5, 7))
    assert held.total_bytes == 90_000
    assert not oldest.has_ended
    await other.send(begun(1))
    assert held.total_bytes == 75_000
    (goaway,) = oldest.kinds(FrameType.GOAWAY)
    assert goaway.payload[4:8] == b"\0\0\0\x0b"
    assert b"a request goes on for too long" in goaway.payload
    (record,) = caplog.records
    assert "a request goes on for too long" in record.getMessage()
    assert oldest.has_ended
    await newer.send(request(9, b"more"))
    await other.send(request(3, b"and more"))
    assert newer.body(9) == message(b"more")
    assert other.body(3) == message(b"and more")
    assert not newer.kinds(FrameType.GOAWAY)
    assert not other.kinds(FrameType.GOAWAY)


async def test_a_connection_may_be_the_one_that_makes_room_for_itself(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    held = HeldByCalls(LIMIT_BYTES)
    client = await connected(nursery, echo, LIMITS, held=held)
    await client.send(begun(*range(1, 30, 2)))
    assert len(client.kinds(FrameType.GOAWAY)) == 1
    assert client.has_ended
    assert held.total_bytes == 0


async def test_requests_that_wait_for_room_have_it_made_in_time(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    held = HeldByCalls(LIMIT_BYTES)
    idle, waiting = [await connected(nursery, echo, LIMITS, held=held) for _ in range(2)]
    await idle.send(begun(1, 3, 5))
    await waiting.send(begun(1, 3))
    assert held.is_tight
    await trio.sleep(9)
    await waiting.settle()
    assert not idle.has_ended
    assert windows(waiting) == {}
    await trio.sleep(2)
    await waiting.settle()
    assert idle.has_ended
    assert windows(waiting) == {1: 15_000, 3: 15_000}
    await trio.sleep(30)
    assert not waiting.has_ended


async def test_nothing_is_held_for_calls_that_are_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    held = HeldByCalls(LIMIT_BYTES)
    async with trio.open_nursery() as nursery:
        client = await connected(nursery, echo, LIMITS, held=held)
        await client.send(begun(1, 3))
        assert held.total_bytes == 30_000
        nursery.cancel_scope.cancel()
    assert held.total_bytes == 0


LARGE_FRAMES = Limits(max_frame_bytes=1 << 17)
NO_WINDOW = PREFACE + settings_frame({Setting.INITIAL_WINDOW_SIZE: 0})


async def test_answers_that_are_not_taken_end_the_connection_with_the_oldest(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    answers = HeldByCalls(LIMIT_BYTES, "an answer is not taken")
    oldest, newer, other = [
        await connected(nursery, echo, LARGE_FRAMES, begin=NO_WINDOW, answers=answers)
        for _ in range(3)
    ]
    await oldest.send(request(1, bytes(60_000)))
    await newer.send(request(1, bytes(30_000)))
    assert answers.total_bytes == 90_000
    await other.send(request(1, bytes(30_000)))
    (goaway,) = oldest.kinds(FrameType.GOAWAY)
    assert b"an answer is not taken" in goaway.payload
    assert answers.total_bytes == 60_000
    await newer.send(window_update_frame(1, 1 << 20))
    assert newer.body(1) == message(bytes(30_000))
    assert answers.total_bytes == 30_000
    await other.close()
    assert answers.total_bytes == 0


async def test_an_answer_is_held_until_it_is_taken_or_its_deadline_has_passed(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """Also that of a router that has ended the task which sent it."""

    async def answer(call: Call) -> None:
        with trio.move_on_after(1):
            await echo(call)

    answers = HeldByCalls(LIMIT_BYTES)
    client = await connected(nursery, answer, LARGE_FRAMES, begin=NO_WINDOW, answers=answers)
    hurried = (*CALL, ("grpc-timeout", "3S"))
    await client.send(request(1, bytes(40_000)), request(3, bytes(40_000), hurried))
    await trio.sleep(2)
    assert answers.total_bytes > 80_000
    await trio.sleep(2)
    await client.settle()
    assert answers.total_bytes < 50_000
    await client.send(window_update_frame(1, 1 << 20))
    assert client.body(1) == message(bytes(40_000))
    assert answers.total_bytes == 0
    codes = {number: each["grpc-status"] for number, each in client.statuses().items()}
    assert codes == {1: str(Status.OK.value), 3: str(Status.DEADLINE_EXCEEDED.value)}
