"""Each limit fires in its time, whatever else the served connection is waiting for."""

from __future__ import annotations

import math
from typing import NamedTuple

import trio
import trio.testing

from proxy.http2.call import Call
from proxy.http2.frames import (
    END_HEADERS,
    END_STREAM,
    PREFACE,
    ErrorCode,
    FrameType,
    frame,
    settings_frame,
    window_update_frame,
)
from tests.proxy.http2.peer import Frame, headers
from tests.proxy.http2.served import Route, connected

GREETING = PREFACE + settings_frame({})
SMALL_WINDOWS = PREFACE + settings_frame({4: 10})
PING = frame(FrameType.PING, 0, 0, bytes(8))
CALL = headers(1, flags=END_HEADERS | END_STREAM)


def told(heard: Frame) -> str:
    """What a client is told of a limit; empty for other frames."""
    match heard.kind, heard.flags:
        case FrameType.GOAWAY, _:
            return f"GOAWAY {ErrorCode(int.from_bytes(heard.payload[4:8])).name}"
        case FrameType.RST_STREAM, _:
            return f"RST {ErrorCode(heard.number).name}"
        case FrameType.PING, 0:
            return "PING"
        case _:
            return ""


def after(seconds: float, size: int = 0) -> Route:
    """Answer calls so late, and with so many bytes."""

    async def route(call: Call) -> None:
        await trio.sleep(seconds)
        await call.send(bytes(size))

    return route


class Script(NamedTuple):
    """What a client sends, and when; and what it is told first, and when."""

    name: str
    route: Route
    sends: dict[float, bytes]
    due_s: float
    due: str


CALM = "GOAWAY ENHANCE_YOUR_CALM"
IDLE = "GOAWAY NO_ERROR"
UNREAD = "RST CANCEL"
SCRIPTS = (
    Script("no settings", after(0), {0: PREFACE}, 10, CALM),
    Script("headers", after(0), {0: GREETING, 7: headers(1, flags=END_STREAM)}, 17, CALM),
    Script("a frame", after(0), {0: GREETING, 7: CALL[:12]}, 37, CALM),
    Script("no call", after(0), {0: GREETING}, 120, IDLE),
    Script("a quick call", after(0), {0: GREETING, 7: CALL}, 127, IDLE),
    Script("a slow call", after(50), {0: GREETING, 7: CALL}, 177, IDLE),
    Script("a slow call, pings", after(50), {0: GREETING, 7: CALL, 120: PING}, 177, IDLE),
    Script("a stall at once", after(0, 100), {0: SMALL_WINDOWS, 7: CALL}, 37, UNREAD),
    Script("a stall later", after(17, 100), {0: SMALL_WINDOWS, 7: CALL}, 54, UNREAD),
    Script(
        "an answer that is taken late",
        after(17, 100),
        {0: SMALL_WINDOWS, 7: CALL, 40: window_update_frame(1, 1000)},
        160,
        IDLE,
    ),
    Script("silence", after(math.inf), {0: GREETING, 7: CALL}, 67, "PING"),
)


async def test_each_limit_fires_in_its_time(autojump_clock: trio.testing.MockClock) -> None:
    begun = trio.current_time()
    wrong: list[str] = []

    async def run(script: Script) -> None:
        client = await connected(nursery, script.route, begin=script.sends[0])
        for at, sent in script.sends.items():
            if at:
                await trio.sleep_until(begun + at)
                await client.send(sent)
        await trio.sleep_until(begun + script.due_s + 70)
        found = [(at - begun, told(each)) for at, each in client.heard if told(each)][:1]
        if [text for _, text in found] != [script.due] or abs(found[0][0] - script.due_s) > 1:
            wrong.append(f"{script.name}: {found}, not {script.due} at {script.due_s}")
        await client.close()

    async with trio.open_nursery() as nursery:
        for script in SCRIPTS:
            nursery.start_soon(run, script)
    assert wrong == []
