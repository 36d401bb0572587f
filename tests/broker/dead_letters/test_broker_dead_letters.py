"""Dead letters are delivered once more, each once, also through a loss of the leader."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
from hypothesis import given
from hypothesis import strategies as st

from broker.dead_letters import processor
from broker.dead_letters.commands import Redrive
from broker.dead_letters.runs import OffsetRuns
from broker.dead_letters.state import REDRIVEN
from broker.features import REGISTRY, empty_state
from broker.log.entry import encode_log_command
from broker.log.fold import fold
from broker.log.folded import EntryRefused
from broker.log.state_snapshot import captured, restored
from broker.topics.commands import DeleteTopic, PutTopic
from remoting.bodies.topic_config import TopicConfig
from remoting.message.record import decode_records
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError
from tests.broker.log.test_broker_fold import Log
from tests.broker.one_broker import START_MS, Client, Clock, running_broker, served
from tests.broker.three_brokers import group_of_three

CODE = RequestCode.REDRIVE_DEAD_LETTERS
COUNTS = ("redriven", "taken", "passedOver", "withoutTopic", "nextOffset", "endOffset")


async def die(client: Client, *bodies: bytes, topic: str = "T") -> None:
    """Have messages become dead letters of group g; the topic has one queue."""
    one_queue: dict[str, Any] = {"topic": topic, "readQueueNums": 1, "writeQueueNums": 1}
    await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, perm=6, **one_queue)
    await client.heartbeat("c", "g", topic)
    for body in bodies:
        unique = f"KEYS\x01k\x02UNIQ_KEY\x01id-{body.decode()}\x02"
        offset = (await client.send(topic, body, i=unique)).integer("queueOffset")
        (sent,) = decode_records((await client.pull(topic, offset)).body)
        back: dict[str, Any] = {"group": "g", "offset": sent.physical_offset, "delayLevel": -1}
        assert (await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back)).code == 0


async def ask(client: Client, ids: list[str] | None = None, **more: Any) -> Command:
    body = b"" if ids is None else json.dumps({"msgIds": ids}).encode()
    return await client.ask(CODE, body, **{"consumerGroup": "g", "queueId": 0, **more})


async def redrive(client: Client, ids: list[str] | None = None, /, **more: Any) -> list[int]:
    """The counts of a reply: see COUNTS."""
    reply = await ask(client, ids, **more)
    assert reply.code == 0, reply
    return [reply.integer(name) for name in COUNTS]


async def bodies(client: Client, topic: str) -> list[bytes]:
    reply = await client.pull(topic, 0)
    return [] if reply.code else [one.body for one in await client.messages(topic)]


@pytest.mark.feature("F39")
async def test_dead_letters_go_to_their_group_once_more_and_each_once(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await die(client, b"a", b"b", b"c")
        assert await redrive(client, maxMsgNums=2) == [2, 0, 0, 0, 2, 3]
        assert await redrive(client, beginOffset=2) == [1, 0, 0, 0, 3, 3]
        assert await redrive(client) == [0, 3, 0, 0, 3, 3]
        first = (await client.messages("%RETRY%g"))[0]
        assert await bodies(client, "%RETRY%g") == [b"a", b"b", b"c"]
        pairs = first.property_map()
        assert (first.reconsume_times, pairs["RETRY_TOPIC"]) == (0, "T")
        assert pairs["UNIQ_KEY"] == "id-a"
        assert not {"DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "DELAY"} & pairs.keys()
        assert await bodies(client, "%DLQ%g") == [b"a", b"b", b"c"], "they stay, to be looked at"
        await die_again(client)
        assert await redrive(client) == [1, 3, 0, 0, 4, 4], "who fails again is a new dead letter"


async def die_again(client: Client) -> None:
    """The first copy in the retry topic fails for good."""
    copy = (await client.messages("%RETRY%g"))[0]
    back: dict[str, Any] = {"group": "g", "offset": copy.physical_offset, "delayLevel": -1}
    assert (await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back)).code == 0
    again = (await client.messages("%DLQ%g"))[-1].property_map()
    assert again["DLQ_ORIGIN_TOPIC"] == "T"


async def test_dead_letters_go_back_to_the_topic_they_were_sent_to(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await die(client, b"a")
        await die(client, b"b", topic="U")
        assert await redrive(client, target="TOPIC") == [2, 0, 0, 0, 2, 2]
        copy = (await client.messages("T"))[-1]
        assert [one.body for one in await client.messages("T")] == [b"a", b"a"]
        assert "RETRY_TOPIC" not in copy.property_map()
        assert "ORIGIN_MESSAGE_ID" not in copy.property_map()
        assert await bodies(client, "U") == [b"b", b"b"]
        assert await bodies(client, "%RETRY%g") == []


async def test_an_operator_selects_by_id_by_time_and_looks_first(tmp_path: Path) -> None:
    clock = Clock()
    async with running_broker(tmp_path, clock=clock) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        for body in (b"a", b"b", b"c"):
            await die(client, body)
            clock.now_ms += 1000
        of_b = (await client.messages("T"))[1]
        letters = await client.messages("%DLQ%g")
        origin = letters[2].property_map()["DLQ_ORIGIN_MESSAGE_ID"]
        applied = broker.node.status().applied
        assert await redrive(client, ["id-b"], dryRun="true") == [1, 0, 2, 0, 3, 3]
        second: dict[str, Any] = {
            "beginTimestamp": START_MS + 1000,
            "endTimestamp": START_MS + 1999,
        }
        assert await redrive(client, dryRun="true", **second) == [1, 0, 2, 0, 3, 3]
        assert broker.node.status().applied == applied, "to look changes nothing"
        assert await redrive(client, ["id-b", "nobody"]) == [1, 0, 2, 0, 3, 3]
        assert await redrive(client, [origin]) == [1, 0, 2, 0, 3, 3]
        assert await bodies(client, "%RETRY%g") == [of_b.body, b"c"]
        assert await redrive(client, **second) == [0, 1, 2, 0, 3, 3]
        runs = broker.machine.state[REDRIVEN].runs["%DLQ%g"][0]
        assert (runs.begins, runs.ends) == ([1], [3])
        told = json.loads((await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)
        assert told["table"]["dledgerRedrivenDeadLetters"] == "2"


async def test_letters_of_a_topic_that_is_gone_stay(tmp_path: Path) -> None:
    async with served(tmp_path, auto_create_topics=True) as client:
        await die(client, b"a")
        await die(client, b"b", topic="U")
        assert (await client.send("%DLQ%g", b"no origin")).code == 0
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
        assert await redrive(client, target="TOPIC") == [1, 0, 0, 2, 3, 3]
        assert await redrive(client) == [1, 1, 0, 1, 3, 3], "the group may have it all the same"


async def test_what_cannot_be_asked_is_refused_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        assert (await ask(client)).code == ResponseCode.TOPIC_NOT_EXIST
        await die(client, b"a")
        before = broker.node.status().last_index
        wrong: list[tuple[dict[str, Any], int]] = [
            ({"queueId": 1}, ResponseCode.INVALID_PARAMETER),
            ({"queueId": -1}, ResponseCode.INVALID_PARAMETER),
            ({"beginOffset": -1}, ResponseCode.INVALID_PARAMETER),
            ({"maxMsgNums": 0}, ResponseCode.INVALID_PARAMETER),
            ({"maxMsgNums": 257}, ResponseCode.INVALID_PARAMETER),
            ({"target": "ELSEWHERE"}, ResponseCode.INVALID_PARAMETER),
            ({"consumerGroup": "bad name"}, ResponseCode.INVALID_PARAMETER),
            ({"ids": ["x"] * 1001}, ResponseCode.INVALID_PARAMETER),
            ({"consumerGroup": "other"}, ResponseCode.TOPIC_NOT_EXIST),
        ]
        for fields, code in wrong:
            reply = await ask(client, **fields)
            assert (reply.code, "\n" in str(reply.remark)) == (code, False), fields
        assert (await ask(client, beginOffset=1 << 62)).fields["redriven"] == "0"
        assert (await client.ask(CODE, b"{", consumerGroup="g")).code == ResponseCode.SYSTEM_ERROR
        monkeypatch.setattr(processor, "MAX_RUNS", 255)
        refused = await ask(client)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "gaps" in str(refused.remark)
        assert broker.node.status().last_index == before
        closed: dict[str, Any] = {"topic": "%RETRY%g", "readQueueNums": 1, "writeQueueNums": 1}
        await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, perm=4, **closed)
        assert (await ask(client)).code == ResponseCode.NO_PERMISSION


async def test_two_who_ask_at_once_double_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        one, other = (Client(nursery, str(broker.config.address)) for _ in range(2))
        await die(one, b"a", b"b")
        replies: list[Command] = []

        async def take(client: Client) -> None:
            replies.append(await ask(client))

        async with trio.open_nursery() as asking:
            for client in (one, other, one):
                asking.start_soon(take, client)
        assert {reply.code for reply in replies} <= {0, ResponseCode.SYSTEM_BUSY}
        assert sum(reply.integer("redriven") for reply in replies if not reply.code) == 2
        assert await bodies(one, "%RETRY%g") == [b"a", b"b"]


async def test_a_group_whose_dead_letter_topic_is_made_anew_begins_anew(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await die(client, b"a")
        assert await redrive(client) == [1, 0, 0, 0, 1, 1]
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="%DLQ%g")
        await die(client, b"b")
        assert await redrive(client) == [1, 0, 0, 0, 2, 2]  # its offsets go on


async def test_a_restarted_member_knows_what_was_taken(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await die(client, b"a", b"b")
        assert await redrive(client, ["id-b"]) == [1, 0, 1, 0, 2, 2]
    async with served(tmp_path) as client:
        assert await redrive(client) == [1, 1, 0, 0, 2, 2]
        assert await bodies(client, "%RETRY%g") == [b"b", b"a"]


async def test_a_leader_that_is_lost_in_the_middle_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    letters = [b"%d" % number for number in range(60)]
    async with group_of_three(tmp_path) as group:
        name, client = await group.leader()
        await die(client, *letters)
        async with trio.open_nursery() as nursery:

            async def take() -> None:
                # Nobody waits for the answer: the leader is stopped on the way.
                with trio.move_on_after(0.5), suppress(RemotingError):
                    await client.ask(CODE, consumerGroup="g", maxMsgNums=50)

            nursery.start_soon(take)
            await trio.sleep(0.005)
            group.stop(name)
            await trio.lowlevel.checkpoint()
        _name, client = await group.leader()
        taken = 0
        offset = 0
        while offset < len(letters):
            counts = await redrive(client, beginOffset=offset, maxMsgNums=7)
            taken += counts[0] + counts[1]
            offset = counts[4]
        assert taken == len(letters)
        assert sorted(await all_bodies(client)) == sorted(letters)


async def all_bodies(client: Client) -> list[bytes]:
    found: list[bytes] = []
    while (reply := await client.pull("%RETRY%g", len(found))).code == 0:
        found += [one.body for one in decode_records(reply.body)]
    return found


# --- the fold -------------------------------------------------------------------------------------


def copy_of(log: Log, number: int, letter: int, position: int, begin: int = 0) -> None:
    """The copy of a dead letter, with the command behind it."""
    redrive = Redrive("%DLQ%g", 0, letter, position, begin)
    log.append_record("A", 0, number, attached=encode_log_command(redrive))


def test_a_copy_of_a_letter_that_was_taken_is_refused_with_its_command() -> None:
    log, state = Log(), empty_state()
    for name in ("A", "%DLQ%g"):
        put = PutTopic(TopicConfig(name, 1, 1), 5, max_topics=9)
        log.append(encode_log_command(put))
    letter = log.append_record("%DLQ%g", 0, 0)
    copy_of(log, 0, 0, letter.body_pos)
    copy_of(log, 1, 0, letter.body_pos)
    results = fold(state, log.entries).results
    assert results[:-1] == [None] * 4
    assert isinstance(results[-1], EntryRefused)
    assert "was taken already" in results[-1].reason
    assert state[REDRIVEN].redriven_letters == 1
    assert restored(captured(state), REGISTRY) == state
    log.append(encode_log_command(DeleteTopic("%DLQ%g", 6, with_locks=True)))
    log.append(encode_log_command(PutTopic(TopicConfig("%DLQ%g", 1, 1), 7, max_topics=9)))
    copy_of(log, 1, 0, letter.body_pos)
    results = fold(state, log.entries[5:]).results
    assert state[REDRIVEN].runs == {}
    assert isinstance(results[-1], EntryRefused)
    assert "which was deleted" in results[-1].reason


def test_what_retention_has_dropped_closes_gaps() -> None:
    log, state = Log(), empty_state()
    for name in ("A", "%DLQ%g"):
        log.append(encode_log_command(PutTopic(TopicConfig(name, 1, 1), 5, max_topics=9)))
    letter = log.append_record("%DLQ%g", 0, 0)
    for number, at in enumerate((3, 9, 20)):
        copy_of(log, number, at, letter.body_pos)
    copy_of(log, 3, 15, letter.body_pos, begin=12)
    copy_of(log, 4, 4, letter.body_pos, begin=12)
    results = fold(state, log.entries).results
    assert isinstance(results[-1], EntryRefused)
    runs = state[REDRIVEN].runs["%DLQ%g"][0]
    assert (runs.begins, runs.ends) == ([0, 15, 20], [12, 16, 21])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=60))
def test_runs_are_a_set_of_offsets(steps: list[tuple[bool, int]]) -> None:
    runs = OffsetRuns()
    model: set[int] = set()
    for is_below, offset in steps:
        if is_below:
            runs.add_below(offset)
            model |= set(range(offset))
        elif offset not in model:
            runs.add(offset)
            model.add(offset)
        assert [at in runs for at in range(33)] == [at in model for at in range(33)]
        for end, begin in zip(runs.ends, runs.begins[1:], strict=False):
            assert end < begin, "runs that touch are one"
    covered = [set(range(a, b)) for a, b in zip(runs.begins, runs.ends, strict=True)]
    assert set().union(*covered) == model


def test_a_letter_of_another_shape_is_no_row_of_a_snapshot() -> None:
    for row in (["T", 0, [3]], ["T", 0, [3, 3]], ["T", 0, [3, 4, 4, 5]], [7, 0, [1, 2]]):
        with pytest.raises((ValueError, TypeError)):
            REDRIVEN.rows[0].take(empty_state()[REDRIVEN], [row])
