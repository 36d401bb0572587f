"""Whatever arrives from the network: every decoder raises MessageMalformed or takes it."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgpack
import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dledger
from dledger.config import Address, parse_address
from dledger.core.ledger_view import TermRun
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import AddVoter, Remove
from dledger.core.membership.configuration_codec import decode_configuration, encode_configuration
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Inquiry,
    InquiryAnswer,
    InstallOutcome,
    InstallSnapshot,
    InstallSnapshotResponse,
    Phase,
    PushRequest,
    PushResponse,
    ReadRequest,
    ReadResponse,
    Recall,
    Recollection,
    Reminder,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.core.snapshot.snapshot_offer import LogBegin, SnapshotOffer
from dledger.entry import Entry
from dledger.errors import MessageMalformed
from dledger.free_ports import free_ports
from dledger.query_errors import QueryInvalid
from dledger.sessions.session_entry import (
    AppendInSession,
    CloseSession,
    KeepSessionAlive,
    OpenSession,
)
from dledger.sessions.with_sessions import AnswerKind, SessionAnswer
from dledger.store.batch import verify_batch
from dledger.wire.change_protocol import ChangeRequest, decode_change, encode_change
from dledger.wire.channel_protocol import (
    Opening,
    decode_call,
    decode_channel_answer,
    encode_channel_refused,
    encode_closing,
    encode_opened,
    encode_opening,
)
from dledger.wire.client_protocol import (
    MAX_BODIES,
    MAX_ENTRIES,
    Operation,
    Request,
    decode_entries_answer,
    decode_request,
    encode_entries,
    encode_request,
    split_bodies,
)
from dledger.wire.codec import (
    PROTOCOL_VERSION,
    SHARED_HEARTBEATS,
    SHARED_RESPONSES,
    decode_message,
    decode_shared_heartbeats,
    decode_shared_responses,
    encode_message,
    encode_shared,
)
from dledger.wire.frame import MAX_HEADER_BYTES, Frame, FrameDecoder, encode_frame
from dledger.wire.handshake import (
    MAX_INTRODUCTION_BYTES,
    Caller,
    Hello,
    check_welcome,
    decode_hello,
    encode_hello,
    encode_refused,
    encode_welcome,
)
from dledger.wire.query_protocol import (
    Queried,
    Query,
    decode_queried,
    decode_query,
    encode_queried,
    encode_query,
)
from dledger.wire.session_protocol import (
    decode_session_answers,
    decode_session_request,
    encode_command,
    encode_session_answers,
)
from dledger.wire.watch_protocol import (
    Watch,
    decode_watch,
    decode_watched,
    encode_changes,
    encode_state,
    encode_watch,
)
from tests.examples import examples

HERE = Address("127.0.0.1", 20911)
OFFER = SnapshotOffer(90, 4, 123, 1000, LogBegin(60, 3, 77, 4096))
DEPTH = 1_000  # msgpack's own limit is a little above


def nested(depth: int = DEPTH) -> object:
    value: object = []
    for _ in range(depth):
        value = [value]
    return value


# Stands for a value that is so deep, which Hypothesis could not show.
DEEP = "deep"


def deepened(frame: Frame) -> Frame:
    return Frame([nested() if value == DEEP else value for value in frame.header], frame.payload)


def sent(operation: Operation, numbers: Sequence[int], payload: bytes = b"") -> bytes:
    return encode_request(Request(1, operation, numbers, payload))


GOOD_PEER_FRAMES = [
    encode_message(VoteRequest(3, 7, 2, True)),
    encode_message(VoteResponse(3, True, False, 7, 2)),
    encode_message(PushRequest(3, Phase.APPEND, 7, 2, 8, 6, -1, (TermRun(3, 8),)), b"entries"),
    encode_message(PushResponse(3, Phase.APPEND, True, 8)),
    encode_message(Heartbeat(3, 7, 9)),
    encode_message(HeartbeatResponse(3, 9, 500)),
    encode_message(TimeoutNow(3)),
    encode_message(ReadRequest(3, 1)),
    encode_message(ReadResponse(3, 1, 7)),
    encode_message(InstallSnapshot(5, OFFER, 0, 0, 0, b"")),
    encode_message(InstallSnapshotResponse(5, InstallOutcome.RECEIVING, 90, 4, 10, 10)),
    encode_message(Inquiry(3, 1)),
    encode_message(InquiryAnswer(3, 1, 7, False, True, False, 1)),
    encode_message(Reminder(3, 1)),
    encode_message(Recall(3, 1)),
    encode_message(Recollection(3, 1, 2, True, 7)),
    encode_shared(SHARED_HEARTBEATS, [0, 3, 7, 9, 1, 3, 7, 9]),
    encode_shared(SHARED_RESPONSES, [0, 3, 9, 500]),
    encode_opening(Opening(1, "g", "n1", "n0")),
    encode_closing(1),
    encode_opened(1),
    encode_channel_refused(1, "no"),
    encode_hello(Hello(Caller.PEER, address=HERE)),
    encode_hello(Hello(Caller.CLIENT, "g", "n0")),
    encode_welcome("n0"),
    encode_refused("no"),
]
CHANGES = [AddVoter("n9", "127.0.0.1:1"), Remove("n1")]
GOOD_CLIENT_FRAMES = [
    sent(Operation.STATUS, []),
    sent(Operation.APPEND, [1, 2], b"abb"),
    sent(Operation.ENTRIES, [0, 0]),
    sent(Operation.TRANSFER, [], b"n1"),
    sent(Operation.SNAPSHOT, []),
    sent(*encode_change(ChangeRequest(CHANGES))),
    sent(*encode_command(OpenSession(1000))),
    sent(*encode_command(AppendInSession(5, 1, 0, [b"a"]))),
    sent(*encode_command(KeepSessionAlive(5))),
    sent(*encode_command(CloseSession(5))),
    sent(*encode_query(Query("get", ("tea", 1), stale=True, max_lag_ms=5, after=7))),
    sent(*encode_watch(Watch(("prices", b"tea", 3), 7, 1000))),
    encode_queried(1, "get", Queried({"tea": 3}, 7, "n0")),
    encode_changes(1, [msgpack.packb([8, ["prices"], 3]), msgpack.packb([9, []])], 9, "n0"),
    encode_state(1, (), 9, [(("prices", "tea"), 3)], None),
    encode_entries(1, [Entry(1, 1, 48, 1, b"body")]),
    encode_session_answers(1, [SessionAnswer(AnswerKind.APPLIED, 1, b"\xc0")]),
]
GOOD_FRAMES = [frame for data in GOOD_PEER_FRAMES for frame in FrameDecoder().feed(data)]
GOOD_FRAMES += [frame for data in GOOD_CLIENT_FRAMES for frame in FrameDecoder().feed(data)]

PAYLOADS = [
    b"",
    msgpack.packb([["add", "n9", "127.0.0.1:1"]]),
    encode_configuration(
        7, Configuration(voters=frozenset({"n0"}), addresses={"n0": "127.0.0.1:1"})
    ),
]


def _request(frame: Frame) -> None:
    request = decode_request(frame)
    for decode in (
        *(split_bodies, decode_session_request, decode_change),
        *(decode_query, decode_watch),
    ):
        with suppress(MessageMalformed, QueryInvalid):
            decode(request)


def _answer(decode: Callable[[object, bytes], object]) -> Callable[[Frame], object]:
    return lambda frame: decode(frame.header[-1], frame.payload)


DECODERS: dict[str, Callable[[Frame], object]] = {
    "message": decode_message,
    "shared heartbeats": decode_shared_heartbeats,
    "shared responses": decode_shared_responses,
    "call": decode_call,
    "channel answer": decode_channel_answer,
    "hello": decode_hello,
    "welcome": check_welcome,
    "request": _request,
    "entries": _answer(decode_entries_answer),
    "session answers": _answer(decode_session_answers),
    "query's answer": _answer(decode_queried),
    "watch's answer": _answer(partial(decode_watched, Watch((), 7, 0))),
    "first answer of a watch": _answer(partial(decode_watched, Watch((), None, 0))),
    "changes": lambda frame: decode_change(Request(1, Operation.CHANGE, [0], frame.payload)),
    "configuration": lambda frame: decode_configuration(frame.payload),
    "batch": lambda frame: verify_batch(frame.payload, 1, None, 1),
}

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.sampled_from([-1, 0, 1, 2, 2**31, 2**63 - 1, 2**63, 2**64 - 1])
    | st.floats()
    | st.text(max_size=300)
    | st.binary(max_size=20)
    | st.sampled_from(["open", "close", "opened", "refused", "hello", "welcome", "peer", "client"])
    | st.sampled_from([f"h:{'9' * 5000}", ":" * 300, "a" * 50_000, *Operation])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
) | st.just(DEEP)
PAYLOADS += [frame.payload for frame in GOOD_FRAMES]
payloads = st.binary(max_size=200) | st.sampled_from(PAYLOADS) | values.map(msgpack.packb)


@st.composite
def changed(draw: st.DrawFn) -> Frame:
    """A good frame of which a few fields are others, too many, or missing."""
    frame = draw(st.sampled_from(GOOD_FRAMES))
    header = list(frame.header)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(header) - 1))
        match draw(st.sampled_from(["other", "more", "less", "inside"])):
            case "other":
                header[at] = draw(values)
            case "more":
                header.insert(at, draw(values))
            case "less" if len(header) > 1:
                del header[at]
            case _:
                inside = header[at]
                if isinstance(inside, list) and inside:
                    header[at] = [*inside[:-1], draw(values)]
    return Frame(header, draw(st.just(frame.payload) | payloads))


frames = changed() | st.builds(Frame, st.lists(values, min_size=1, max_size=8), payloads)


def problem_of(decode: Callable[[Frame], object], frame: Frame) -> str | None:
    try:
        decode(frame)
    except MessageMalformed as error:
        return error.problem
    return None


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=examples(60))
@given(frame=frames)
@example(frame=Frame([DEEP], b""))
@example(frame=Frame([1, DEEP, DEEP], b""))
@example(frame=Frame(["hello", 2, "peer", "", "", f"h:{'9' * 5000}"], b""))
@example(frame=Frame(["hello", DEEP], b""))
@example(frame=Frame(["open", DEEP], b""))
@example(frame=Frame(["refused", DEEP], b""))
def test_a_decoder_takes_a_frame_or_says_that_it_is_malformed(name: str, frame: Frame) -> None:
    problem = problem_of(DECODERS[name], deepened(frame))
    assert problem is None or len(problem) < 1_000  # it becomes a line of the log


@settings(max_examples=examples(100))
@given(st.binary(max_size=300) | values.map(msgpack.packb))
def test_a_header_is_decoded_or_malformed(packed: bytes) -> None:
    data = framed(packed[:MAX_HEADER_BYTES])
    with suppress(MessageMalformed):
        FrameDecoder().feed(data)


def framed(packed: bytes) -> bytes:
    length = 2 + len(packed)
    return length.to_bytes(4, "big") + len(packed).to_bytes(2, "big") + packed


def peak_bytes(decode: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(MessageMalformed):
            decode()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_bytes_that_announce_more_than_they_bring_get_no_room_for_it() -> None:
    for announced, length in ((200, 999), (50_000, 59_000), (2**32 - 1, 59_000)):
        bomb = (b"\xdd" + announced.to_bytes(4, "big")) * 1_000
        header = framed(bomb.ljust(length, b"\x01")[:length])
        assert peak_bytes(partial(FrameDecoder().feed, header)) < 4_000_000
    changes = (b"\xdd" + (20_000).to_bytes(4, "big")) * 4_000
    request = Request(1, Operation.CHANGE, [0], changes)
    assert peak_bytes(lambda: decode_change(request)) < 4_000_000
    configuration = ((b"\xdd" + (9_000).to_bytes(4, "big")) * 1_000).ljust(10_000, b"\x01")
    assert peak_bytes(lambda: decode_configuration(configuration)) < 4_000_000


def test_a_map_of_too_many_keys_is_refused() -> None:
    for keys in (1_000, 1_001):
        header = framed(msgpack.packb([{f"{number:04}": number for number in range(keys)}]))
        if keys > 1_000:
            with pytest.raises(MessageMalformed, match="not msgpack"):
                FrameDecoder().feed(header)
        else:
            assert FrameDecoder().feed(header)


def test_changes_of_more_bytes_than_a_change_can_have_are_not_looked_at() -> None:
    with pytest.raises(MessageMalformed, match="bytes of changes"):
        decode_change(Request(1, Operation.CHANGE, [0], bytes(100_000)))


def test_a_configuration_of_deep_lists_is_malformed() -> None:
    with pytest.raises(MessageMalformed, match="version list"):
        decode_configuration(msgpack.packb([nested(900)]))


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("wrong", [-1, 1.0, "1", None, True, [1]])
def test_a_row_of_an_entry_holds_numbers(at: int, wrong: object) -> None:
    row: list[object] = [1, 1, 48, 1, 4]
    assert decode_entries_answer([row], b"body")
    row[at] = wrong
    with pytest.raises(MessageMalformed):
        decode_entries_answer([row], b"body")


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("wrong", [2.0, "1", None, True, [1], 99])
def test_a_row_of_a_session_holds_numbers(at: int, wrong: object) -> None:
    row: list[object] = [int(AnswerKind.APPLIED), 1, 1]
    assert decode_session_answers([row], b"\xc0")
    row[at] = wrong
    if (at, wrong) != (1, 99):  # any number of its own is right there
        with pytest.raises(MessageMalformed):
            decode_session_answers([row], b"\xc0")


@pytest.mark.parametrize("channel", [-1, 2**48, True, 1.0, "1", None])
def test_the_number_of_a_channel_is_one_that_can_be(channel: object) -> None:
    for header in (["open", channel, "g", "n1", "n0"], ["close", channel]):
        with pytest.raises(MessageMalformed, match="not a channel number"):
            decode_call(Frame(header, b""))
    for answer in (["opened", channel], ["refused", channel, "no"]):
        with pytest.raises(MessageMalformed, match="not a channel number"):
            decode_channel_answer(Frame(answer, b""))


def test_the_longest_headers_of_our_own_are_read() -> None:
    most = encode_shared(SHARED_HEARTBEATS, [0, 3, 7, 9] * 2_000)
    [frame] = FrameDecoder().feed(most)
    assert len(decode_shared_heartbeats(frame)) == 2_000
    numbers = [1] * MAX_BODIES
    [frame] = FrameDecoder().feed(sent(Operation.APPEND, numbers, bytes(MAX_BODIES)))
    assert len(split_bodies(decode_request(frame))) == MAX_BODIES


def test_an_answer_holds_no_more_entries_than_its_header_has_room_for() -> None:
    entries = [Entry(2**63 - n, 2**63 - 1, 2**63 - 1, 2**31 - 1, b"") for n in range(9_000, 0, -1)]
    [frame] = FrameDecoder().feed(encode_entries(2**64 - 1, entries))
    found = decode_entries_answer(frame.header[2], frame.payload)
    assert found == entries[: len(found)]
    assert len(found) == MAX_ENTRIES


async def test_a_caller_that_has_not_introduced_itself_cannot_have_much_kept(
    tmp_path: Path,
) -> None:
    async with a_node(tmp_path) as (_, address), await trio.open_tcp_stream(*address) as stream:
        await stream.send_all((MAX_INTRODUCTION_BYTES + 1).to_bytes(4, "big"))
        with trio.fail_after(3):
            (refusal,) = FrameDecoder().feed(await read_all(stream))
    assert refusal.header[0] == "refused"
    assert "the limit is" in str(refusal.header[1])


async def read_all(stream: trio.SocketStream) -> bytes:
    return b"".join([bytes(data) async for data in stream])


class Anything:
    """Somebody who says anything at all."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def value(self, depth: int = 0) -> object:
        chance = self._chance
        match chance.randrange(12 if depth < 3 else 9):
            case 0:
                return chance.choice([-1, 0, 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1])
            case 1:
                return chance.randrange(20)
            case 2:
                return chance.random()
            case 3:
                return chance.choice([True, False, None])
            case 4:
                return chance.choice([*map(str, Operation), "g", "n0", "n1", "open", "close"])
            case 5:
                return chance.choice(["", "x" * 5_000, f"h:{'9' * 5_000}", "\x00" * 300])
            case 6:
                return chance.randbytes(chance.randrange(20))
            case 7:
                return nested(chance.choice([3, 500, 1_000]))
            case 8:
                return chance.randrange(-(2**63), 2**64)
            case 9:
                return {str(number): self.value(depth + 1) for number in range(3)}
            case _:
                return [self.value(depth + 1) for _ in range(chance.randrange(5))]

    def frame(self, good: Sequence[bytes]) -> bytes:
        """Bytes, a frame of anything, or a good frame with something else in it."""
        chance = self._chance
        if chance.random() < 0.1:
            return chance.randbytes(chance.randrange(60))
        [frame] = FrameDecoder().feed(chance.choice(good))
        header = list(frame.header)
        for _ in range(chance.randrange(3)):
            header[chance.randrange(len(header))] = self.value()
        payload = frame.payload
        if chance.random() < 0.3:
            payload = chance.choice([b"", chance.randbytes(50), msgpack.packb(self.value())])
        packed = msgpack.packb(header)
        length = 2 + len(packed) + len(payload)
        sizes = length.to_bytes(4, "big") + min(len(packed), 65_535).to_bytes(2, "big")
        return b"".join((sizes, packed, payload))


@asynccontextmanager
async def a_node(folder: Path) -> AsyncIterator[tuple[dledger.Node, Address]]:
    [port] = free_ports(1)
    config = dledger.NodeConfig(
        group="g", node_id="n0", peers={"n0": f"127.0.0.1:{port}"}, data_dir=folder, new=True
    )
    async with dledger.open_node(config, dledger.WithSessions(dledger.LogOnly())) as node:
        with trio.fail_after(20):
            async for change in node.role_changes():
                if change.ready:
                    break
        yield node, parse_address("n0", config.peers["n0"])


async def say(address: Address, data: bytes) -> None:
    """Say it, hear what there is to hear, leave."""
    async with await trio.open_tcp_stream(*address) as stream:
        with suppress(trio.BrokenResourceError), trio.move_on_after(0.05):
            await stream.send_all(data)
            while await stream.receive_some(65_536):
                pass


WORST_HELLOS: list[list[object]] = [
    ["hello", PROTOCOL_VERSION, "peer", "", "", f"h:{'9' * 5_000}"],
    ["hello", nested()],
    ["hello", PROTOCOL_VERSION, "client", "g" * 10_000, "", ""],
    ["hello", PROTOCOL_VERSION, "\x00" * 12_000, "", "", ""],
]


async def test_the_worst_of_introductions_end_their_own_connections_alone(tmp_path: Path) -> None:
    async with a_node(tmp_path) as (node, address):
        for header in WORST_HELLOS:
            await say(address, encode_frame(header))
        assert await node.append(b"still here")


HELLOS = {
    "a stranger": b"",
    "a peer": encode_hello(Hello(Caller.PEER, address=HERE))
    + encode_opening(Opening(0, "g", "n1", "n0")),
    "a client": encode_hello(Hello(Caller.CLIENT, "g", "n0")),
}


@pytest.mark.parametrize("kind", HELLOS)
async def test_whatever_a_caller_says_the_node_goes_on_serving_others(
    kind: str, tmp_path: Path
) -> None:
    good = GOOD_CLIENT_FRAMES if kind == "a client" else GOOD_PEER_FRAMES
    async with a_node(tmp_path) as (node, address):
        client = dledger.GroupClient("g", {"n0": str(address)})
        for seed in range(8):
            async with trio.open_nursery() as nursery:
                for number in range(12):
                    caller = Anything(100 * seed + number)
                    data = HELLOS[kind] + b"".join(caller.frame(good) for _ in range(3))
                    nursery.start_soon(say, address, data)
            with trio.fail_after(10):
                assert await client.append([b"still here"], 10.0)
        assert node.status().role == "leader"


def test_what_else_speaks_to_the_port_of_the_log_is_told_by_its_name() -> None:
    rocketmq = b'\x00\x00\x00\x2f\x00\x00\x00\x2b{"code":28,"flag":0,"language":"JAVA","opaque":0}'
    for begins, name in (
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"GET /metrics HTTP/1.1\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n", "HTTP/2"),
        (rocketmq, "a client of RocketMQ"),
    ):
        with pytest.raises(MessageMalformed, match=name):
            FrameDecoder().feed(begins)
