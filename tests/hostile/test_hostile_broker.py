"""Every request code with every part at hostile values: each is answered, and the broker lives."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.limits import BrokerLimits
from broker.log.guarded_log import GuardedLog
from broker.topics.names import SEND_FORBIDDEN
from remoting.message.message_id import parse_message_id
from remoting.wire.codes import RequestCode
from remoting.wire.frame import MAX_HEADER_BYTES
from remoting.wire.on_behalf import USER as REPRESENTED
from remoting.wire.signature import ACCESS_KEY, SIGNATURE, Credentials
from remoting.wire.users import SEAL_KEY_BYTES, AccessFile
from tests.broker.one_broker import Client, running_broker
from tests.hostile.attack import Request, Wire, attacks, frame_of, wire_to
from tests.hostile.broker_requests import HALF_PLACE, NEW_NAME, PLACE, REQUESTS
from tests.hostile.hostile_values import names_in
from tests.hostile.names_read import NamesRead

MAX_TOPICS = 400
FILE = AccessFile(Credentials("admin", "admin-secret"), bytes(SEAL_KEY_BYTES))
# May do everything by a rule, so that what each request needs is read as well.
USER = Credentials("attacker", "attacker-secret")


@asynccontextmanager
async def served(
    directory: Path, access: AccessFile | None = FILE
) -> AsyncIterator[tuple[Client, Wire]]:
    limits = BrokerLimits(max_topics=MAX_TOPICS, max_groups=400)
    async with running_broker(directory, limits=limits, access=access) as (broker, nursery):
        client = Client(nursery, str(broker.config.address), FILE.admin)
        assert (await client.send("T", b"x")).code == 0
        await make_lite(client)
        if access is None:
            async with wire_to(client.address) as wire:
                yield client, wire
            return
        user = {"username": USER.access_key, "password": USER.secret_key}
        assert (await client.ask(RequestCode.AUTH_CREATE_USER, json.dumps(user).encode())).code == 0
        # No pattern means the topics that only brokers write to.
        resources = ("*", *(f"Topic:{topic}" for topic in SEND_FORBIDDEN))
        rule = {"actions": ["All"], "decision": "Allow"}
        entries = [{**rule, "resource": resource} for resource in resources]
        acl = {"subject": "User:attacker", "policies": [{"entries": entries}]}
        assert (await client.ask(RequestCode.AUTH_CREATE_ACL, json.dumps(acl).encode())).code == 0
        async with wire_to(client.address, USER) as wire:
            yield client, wire


async def make_lite(client: Client) -> None:
    """A topic with a lite topic, and a group that reads it."""
    queues = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    made = await client.ask(17, b"", topic="Lite", attributes="+message.type=LITE", **queues)
    assert made.code == 0
    group = json.dumps({"groupName": "lites", "attributes": {"lite.bind.topic": "Lite"}})
    assert (await client.ask(200, group.encode())).code == 0
    assert (await client.send("Lite", b"x", i="__LITE_TOPIC\x01a\x02")).code == 0
    _, subscription = REQUESTS[RequestCode.LITE_SUBSCRIPTION_CTL]
    assert (await client.ask(RequestCode.LITE_SUBSCRIPTION_CTL, subscription)).code == 0


async def open_half(client: Client) -> int:
    """Where a half message lies whose transaction is open."""
    reply = await client.send("T", b"half", i="TRAN_MSG\x01true\x02PGROUP\x01P\x02")
    return parse_message_id(reply.fields["msgId"]).physical_offset


def filled_in(request: Request, number: int, place: int, half: int) -> Request:
    """The request with its places in the log and its new name."""
    fields, body = request
    stand_ins = {
        f'"{PLACE}"': f'"{place}"',
        f'"{HALF_PLACE}"': f'"{half}"',
        f'"{NEW_NAME}"': f'"group-{number}"',
    }
    return {name: stand_ins.get(value, value) for name, value in fields.items()}, body


async def test_each_code_that_is_answered_is_attacked(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, _nursery):
        assert REQUESTS.keys() == broker.requests.handlers.keys()


# Read to find whose request it is; tests of access control and of signatures attack them. A
# signature is of all fields.
OF_EACH_REQUEST = {ACCESS_KEY, SIGNATURE, REPRESENTED, "_UNIQUE_KEY_QUERY", "unknown"}


# Each 23rd attack puts some values into each field. Which is the first depends on the code, so
# that each value is put into the fields of some codes.
@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("code", sorted(REQUESTS))
async def test_each_hostile_request_is_answered_and_the_broker_lives(
    tmp_path: Path,
    code: int,
    step: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields, body = REQUESTS[code]
    # A pop may ask for any time, and is held for the longest time allowed then.
    for module in ("pop", "lite"):
        monkeypatch.setattr(f"broker.{module}.request.MAX_HOLD_S", 0.1)
    async with served(tmp_path) as (client, wire):
        (message,) = await client.messages("T")
        right, *wrong = attacks(fields, body)
        requests = [right, *wrong[code % step :: step]]
        halves = [0] * len(requests)
        if HALF_PLACE in fields.values():
            halves = [await open_half(client) for _ in requests]
        read = NamesRead(monkeypatch)
        for number, (request, half) in enumerate(zip(requests, halves, strict=True)):
            await wire.ask(code, filled_in(request, number, message.physical_offset, half))
        # What is read is attacked.
        assert read.fields - set(fields) - OF_EACH_REQUEST == set()
        assert read.members - names_in(body) == set()
        assert (await client.send("T", b"still here")).code == 0
        topics = json.loads((await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).body)
        assert len(topics["topicConfigTable"]) <= MAX_TOPICS
    # A traceback is a defect of the broker, whatever the request was.
    assert [record.message for record in caplog.records if record.exc_info] == []
    # No client writes lines of its own into the log, or moves the operator's cursor.
    assert [text for text in caplog.messages if not text.isprintable()] == []


async def test_a_header_that_is_too_long_ends_its_connection_and_no_other(tmp_path: Path) -> None:
    async with served(tmp_path) as (client, wire):
        long = {"topic": '"' + "x" * (1 << 20) + '"'}
        assert await wire.ends_after(frame_of(30, (long, b""), 1)[: 8 + MAX_HEADER_BYTES])
        deep = {"topic": "[" * 100_000 + "]" * 100_000}
        async with wire_to(client.address) as other:
            assert await other.ends_after(frame_of(30, (deep, b""), 1))
        assert (await client.send("T", b"still here")).code == 0


async def test_a_message_sent_back_with_a_malformed_number_ends_no_node(tmp_path: Path) -> None:
    async with served(tmp_path) as (client, _wire):
        (first,) = await client.messages("T")
        fields: dict[str, Any] = {
            "group": "unheard-of",
            "offset": first.physical_offset,
            "delayLevel": 0,
        }
        assert (await client.ask(36, **fields, maxReconsumeTimes="abc")).code == 1
        assert (await client.ask(36, **fields, maxReconsumeTimes="3")).code == 0


def test_what_a_request_raises_when_its_append_ends_does_not_reach_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Log:
        is_ready_leader, term, begin_position, max_body_bytes = True, 1, 0, 100

        def submit(self, bodies: object, done: Any) -> None:
            done([])

        def read_bytes(self, pos: int, size: int) -> bytes:
            return b""

        def check_at(self, pos: int) -> None:
            pass

    def fails(_outcome: object) -> None:
        raise RuntimeError("a defect")

    GuardedLog(Log()).submit([b"x"], fails)
    assert "a defect" in caplog.text
