"""What is counted of a client's requests is counted off once all are answered, in each way."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from dledger.errors import LogFull
from dledger.network.plain_socket import NO_DESCRIPTOR
from dledger.serving import client_server
from dledger.serving.client_server import ClientAnswers
from dledger.serving.permit import EVERYTHING


@pytest.mark.parametrize("is_direct", [False, True])
async def test_nothing_is_counted_any_more_when_all_is_answered(
    is_direct: bool, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    chance = random.Random(7)
    ours, theirs = memory_stream_pair()

    def write_now(_descriptor: int, frame: bytes) -> int:
        size = chance.choice((0, len(frame) // 2, len(frame)))
        if size:
            theirs.receive_stream.put_data(frame[:size])
        return size

    descriptor = 7 if is_direct else NO_DESCRIPTOR
    monkeypatch.setattr(client_server, "plain_descriptor", lambda _stream: descriptor)
    monkeypatch.setattr(client_server, "write_now", write_now)
    stream: Any = ours
    answers, heard, said = ClientAnswers(stream), 0, 0
    fresh = state(answers)

    async def read() -> None:
        nonlocal heard
        while data := await theirs.receive_some():
            heard += len(data)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        nursery.start_soon(answers.write, nursery.cancel_scope)
        await trio.testing.wait_all_tasks_blocked()
        fresh = state(answers)
        for _ in range(60):
            sizes = [chance.randrange(50) for _ in range(chance.randrange(1, 5))]
            for size in sizes:
                await answers.wait_room(size)
                answers.begin(size)
            for size in sizes:
                frame = bytes(chance.randrange(1, 90))
                said += len(frame)
                answers.answer(size, frame)
                if chance.random() < 0.5:
                    await trio.testing.wait_all_tasks_blocked()
            await trio.testing.wait_all_tasks_blocked()
            assert (state(answers), heard) == (fresh, said)
        nursery.cancel_scope.cancel()


def state(answers: ClientAnswers) -> dict[str, object]:
    return {
        name: len(value) if isinstance(value, trio.lowlevel.ParkingLot) else value
        for name, value in vars(answers).items()
        if not name.startswith("_outbox") or name == "_outbox_bytes"
    }


async def test_requests_that_fail_leave_room_for_others(autojump_clock: MockClock) -> None:
    told: list[bytes] = []
    answers: Any = SimpleNamespace(answer=lambda _size, frame: told.append(frame))
    request: Any = SimpleNamespace(request_id=1, payload=b"")

    async def fail(_node: object, _request: object) -> bytes:
        raise LogFull(1, 1)

    async with trio.open_nursery() as nursery:
        client = client_server._Client(cast(Any, None), answers, EVERYTHING, nursery)
        for _ in range(3 * client_server.MAX_WAITING):
            client._begin(request, fail)
            await trio.testing.wait_all_tasks_blocked()
    assert len(told) == 3 * client_server.MAX_WAITING
    assert client._waiting == 0
