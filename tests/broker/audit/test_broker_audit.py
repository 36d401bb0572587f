"""Who asked for a change is in the log before it is made."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.access.commands import DeleteUser, PutUser
from broker.access.state import ACCESS
from broker.audit.commands import AuditRequest
from broker.errors import CommandMalformed
from broker.features import REGISTRY, empty_state
from broker.formats.state import FORMATS
from broker.log.entry import AUDIT_VERSION, EntryKind, encode_log_command, kind_of
from broker.log.folded import Folded
from broker.log.state_snapshot import captured
from broker.machine import BrokerMachine
from broker.server import Broker
from broker.topics.state import TOPICS
from dledger import Appended, Body, DLedgerError, LogFull
from remoting.wire.codes import ResponseCode
from tests.broker.access.guarded_broker import CODE, Guarded, allow, guarded
from tests.broker.one_broker import Client, running_broker, until

PUT: dict[str, Any] = {
    **{"topic": "mine", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1},
    **{"perm": 6, "topicFilterType": "SINGLE_TAG"},
}


async def recording(here: Guarded) -> None:
    """Wait until all members of the group of one read records."""
    state = here.broker.machine.state

    async def is_raised() -> bool:
        return state[FORMATS].format_version >= AUDIT_VERSION

    await until(is_raised)


def commands_in(broker: Broker) -> list[Any]:
    bodies = [entry.body for entry in broker.node.entries(1, 1 << 24)]
    return [
        REGISTRY.decode(bytes(body)) for body in bodies if kind_of(bytes(body)) is EntryKind.COMMAND
    ]


def files_in(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


async def test_what_users_change_is_in_the_log_before_it_is_done(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        await recording(here)
        owner = await here.user("owner", allow("Topic:mine*", "All"))
        assert (await owner.ask(CODE.UPDATE_AND_CREATE_TOPIC, **PUT)).code == 0
        assert (await owner.send("mine", b"1")).code == 0
        assert (await owner.ask(CODE.DELETE_TOPIC_IN_BROKER, topic="yours")).code == 16
        group = b'{"groupName":"yours"}'
        assert (await owner.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group)).code == 16
        assert await here.ask(CODE.AUTH_DELETE_USER, username="owner") == 0
        found = commands_in(here.broker)
    secrets = b"".join(files_in(tmp_path))
    records = [one for one in found if isinstance(one, AuditRequest)]
    assert [(one.user, one.request, one.about) for one in records] == [
        ("admin", "AUTH_CREATE_USER", "username=owner"),
        ("admin", "AUTH_UPDATE_ACL", "subject=User:owner"),
        ("owner", "UPDATE_AND_CREATE_TOPIC", "topic=mine"),
        ("admin", "AUTH_DELETE_USER", "username=owner"),
    ]
    assert all(one.peer.startswith("127.0.0.1:") for one in records)
    assert all(one.at_ms > 0 for one in records)
    kinds = [type(one) for one in found]
    for change, record in ((PutUser, records[0]), (DeleteUser, records[3])):
        assert kinds.index(change) == found.index(record) + 1
    assert b"-secret" not in secrets


class FullForRecords:
    """A log without room for records; other entries are taken."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def submit(
        self, bodies: Sequence[Body], done: Callable[[list[Appended] | DLedgerError], None]
    ) -> None:
        body = bodies[0]
        if isinstance(body, bytes) and kind_of(body) is EntryKind.COMMAND:
            command = REGISTRY.decode(body)
            if isinstance(command, AuditRequest):
                raise LogFull(1, 1)
        self._log.submit(bodies, done)


async def test_nothing_is_done_without_a_record(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        await recording(here)
        log = here.broker._log
        log._log = FullForRecords(log._log)
        before = here.broker.machine.state[ACCESS].access_changes
        for code, fields, body in (
            (CODE.UPDATE_AND_CREATE_TOPIC, PUT, b""),
            (CODE.AUTH_CREATE_USER, {"username": "u"}, b'{"password":"long-enough"}'),
            (CODE.CLEAN_EXPIRED_CONSUMEQUEUE, {}, b""),
        ):
            reply = await here.admin.ask(code, body, **fields)
            assert reply.code == ResponseCode.SYSTEM_BUSY, code
        assert "mine" not in here.broker.machine.state[TOPICS].configs
        assert here.broker.machine.state[ACCESS].access_changes == before
        assert (await here.admin.send("orders", b"1")).code == 0
        assert (await here.admin.ask(CODE.AUTH_LIST_USER)).code == 0


async def test_rights_that_end_while_the_record_is_written_count(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here, trio.open_nursery() as nursery:
        await recording(here)
        owner = await here.user("owner", allow("Topic:mine*", "All"))
        requests, codes = here.broker.requests, []
        record, waiting = requests._record, []

        def late(*arguments: Any) -> None:
            if arguments[1].code == CODE.UPDATE_AND_CREATE_TOPIC:
                waiting.append(arguments)
            else:
                record(*arguments)

        requests._record = late

        async def put() -> None:
            codes.append((await owner.ask(CODE.UPDATE_AND_CREATE_TOPIC, **PUT)).code)

        async def is_waiting() -> bool:
            return bool(waiting)

        nursery.start_soon(put)
        await until(is_waiting)
        assert await here.ask(CODE.AUTH_DELETE_ACL, subject="User:owner") == 0
        record(*waiting[0])

        async def is_answered() -> bool:
            return bool(codes)

        await until(is_answered)
        assert codes == [ResponseCode.NO_PERMISSION]
        assert "mine" not in here.broker.machine.state[TOPICS].configs


async def test_texts_of_a_record_are_short_and_on_one_line(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        await recording(here)
        for text in ("a\nb\x1b[2J\u202e", "x" * 10_000, "\U0001f600" * 500):
            fields: dict[str, Any] = dict.fromkeys(("topic", "group", "subject", "resource"), text)
            fields |= {"username": text, "accessKey": text, "msgId": text, "policyType": text}
            await here.admin.ask(CODE.AUTH_DELETE_ACL, **fields)
        records = [one for one in commands_in(here.broker) if isinstance(one, AuditRequest)]
        assert len(records) == 3
        for one in records:
            assert one.about.isprintable()
            assert len(encode_log_command(one)) < 8_000


async def test_without_access_control_and_before_all_members_read_them_there_are_no_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path / "open") as (broker, nursery):
        client = Client(nursery, str(broker.config.listen))
        assert (await client.ask(CODE.UPDATE_AND_CREATE_TOPIC, **PUT)).code == 0
        assert not [one for one in commands_in(broker) if isinstance(one, AuditRequest)]
    monkeypatch.setattr(BrokerMachine, "machine_version", AUDIT_VERSION - 1)
    async with guarded(tmp_path / "guarded") as here:
        assert (await here.admin.ask(CODE.UPDATE_AND_CREATE_TOPIC, **PUT)).code == 0
        assert not [one for one in commands_in(here.broker) if isinstance(one, AuditRequest)]


def test_a_record_changes_no_state_and_is_read_or_refused() -> None:
    record = AuditRequest(1, "u", "p:1", "r", "topic=a")
    state = empty_state()
    before = list(captured(state))
    body = encode_log_command(record)
    assert body[7] == AUDIT_VERSION
    assert REGISTRY.decode(body) == record
    assert REGISTRY.type_of(record).fold(state, Folded(), record, None) is None  # type: ignore[arg-type]
    assert list(captured(state)) == before
    with pytest.raises(CommandMalformed):
        REGISTRY.decode(encode_log_command(AuditRequest(1, "u", "p", "r", 7)))  # type: ignore[arg-type]
    assert json.dumps(REGISTRY.type_of(record).layout.spelt_out(record, AUDIT_VERSION))
