"""Users and rules at a real broker: who may do what, told at once, and never by its secret."""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.access.guard import ACCESS_GUARD
from broker.access.secret_seal import NONCE_BYTES, SealBroken, SecretSeal
from broker.access.state import ACCESS
from broker.features import REGISTRY
from broker.lite.popping import LITE_POPPING
from broker.lite.state import LITE
from broker.log.state_snapshot import captured, restored
from broker.query.searches import Search, Searches
from broker.server import Broker
from broker.transactions.checks import CHECKS
from broker.transactions.state import TRANSACTIONS
from remoting.bodies.access import AskedNeed, encode_needs
from remoting.bodies.heartbeat import ConsumerData, Heartbeat, SubscriptionData, encode_heartbeat
from remoting.message.message_id import message_id
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.signature import ACCESS_KEY, SIGNATURE, Credentials, Signer
from tests.broker.access.guarded_broker import ADMIN, CODE, FILE, NO_PERMISSION, allow, guarded
from tests.broker.broker_in_memory import broker_in_memory
from tests.broker.one_broker import Client, Clock, running_broker, send_fields, until


@pytest.mark.feature("F56")
async def test_a_user_may_do_what_its_rules_say_and_nothing_else(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        writer = await here.user("writer", allow("Topic:orders", "Pub"))
        reader = await here.user("reader", allow("Topic:orders", "Sub"), allow("Group:g", "Sub"))
        assert (await writer.send("orders", b"1")).code == 0
        assert (await writer.send("others", b"1")).code == NO_PERMISSION
        assert (await writer.pull("orders", 0)).code == NO_PERMISSION
        assert (await reader.pull("orders", 0)).body
        assert (await reader.pull("orders", 0, consumerGroup="h")).code == NO_PERMISSION
        assert (await reader.send("orders", b"2")).code == NO_PERMISSION
        assert (await here.admin.send("others", b"1")).code == 0


STRANGERS = (
    (None, "not signed"),
    (Credentials("nobody", "nobody-secret"), "unknown"),
    (Credentials("admin", "another-secret"), "wrong"),
    (Credentials("", "admin-secret"), "not signed"),
    (Credentials("admin\n", "admin-secret"), "unknown"),
)


async def test_who_does_not_prove_its_name_is_refused_everything(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        for credentials, what in STRANGERS:
            stranger = here.client(credentials)
            for code in sorted(here.broker.requests.handlers):
                reply = await stranger.ask(code, b"{}", username="admin")
                assert reply.code == NO_PERMISSION, RequestCode(code)
                assert what in (reply.remark or "")
                assert "secret" not in (reply.remark or "")


async def test_signatures_of_unknown_users_are_checked_like_those_of_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time for a long body would tell which users there are."""
    checked: list[int] = []
    has_signed = Signer.has_signed

    def counted(signer: Signer, command: Command) -> bool:
        checked.append(len(command.body))
        return has_signed(signer, command)

    async with guarded(tmp_path) as here:
        await here.user("known")
        await here.user("disabled", userStatus="disable")
        with monkeypatch.context() as patched:
            patched.setattr(Signer, "has_signed", counted)
            for name in ("known", "disabled", "nobody", "admin"):
                guessing = here.client(Credentials(name, "guessed-secret"))
                assert (await guessing.ask(CODE.HEART_BEAT, bytes(4096))).code == NO_PERMISSION
    assert checked == [4096] * 4


async def test_a_user_without_rules_is_refused_whatever_tells_or_changes_something(
    tmp_path: Path,
) -> None:
    """With every name that a request may have, it gets nothing but what is its own."""
    fields: dict[str, Any] = dict.fromkeys(
        (
            *("topic", "b", "consumerGroup", "group", "groupName", "producerGroup", "srcGroup"),
            "parentTopic",
        ),
        "orders",
    )
    fields |= {"destGroup": "orders", "username": "admin", "subject": "User:admin", "offset": 0}
    fields |= {"liteTopic": "a"}
    fields |= {"msgId": message_id("127.0.0.1", 1, 0), "commitLogOffset": 0, "a": "p", "queueId": 0}
    # Their bodies say what they are about. The last ones are answered with nothing of others.
    by_body = {CODE.HEART_BEAT, CODE.LOCK_BATCH_MQ, CODE.UNLOCK_BATCH_MQ, CODE.BATCH_ACK_MESSAGE}
    by_body |= {CODE.QUERY_ASSIGNMENT, CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP}
    by_body |= {CODE.CHECK_ACCESS, CODE.LITE_SUBSCRIPTION_CTL}
    own = {CODE.CHECK_CLIENT_CONFIG, CODE.END_TRANSACTION, CODE.VIEW_MESSAGE_BY_ID}
    async with guarded(tmp_path) as here:
        poor = await here.user("poor")
        for code in sorted(set(here.broker.requests.handlers) - by_body - own):
            reply = await poor.ask(code, b"{}", **fields)
            assert reply.code == NO_PERMISSION, RequestCode(code)
        heartbeat = Heartbeat(
            "poor@1", [], [ConsumerData("g", subscriptions=[SubscriptionData("orders")])]
        )
        queue = {"topic": "orders", "brokerName": "broker-a", "queueId": 0}
        lock = {"consumerGroup": "g", "clientId": "poor@1", "mqSet": [queue]}
        ack = {
            "c": "g",
            "t": "orders",
            "r": "0",
            "q": 0,
            "rq": 0,
            "so": 0,
            "it": 1,
            "pt": 1,
            "b": "AQ==",
        }
        lite: dict[str, Any] = {
            "action": "PARTIAL_ADD",
            "group": "g",
            "clientId": "c",
            "topic": "orders",
        }
        lite |= {"liteTopicSet": ["a"]}
        for code, body in (
            (CODE.HEART_BEAT, encode_heartbeat(heartbeat)),
            (CODE.LOCK_BATCH_MQ, json.dumps(lock).encode()),
            (CODE.UNLOCK_BATCH_MQ, json.dumps(lock).encode()),
            (CODE.BATCH_ACK_MESSAGE, json.dumps({"brokerName": "b", "acks": [ack]}).encode()),
            (CODE.QUERY_ASSIGNMENT, json.dumps({**lock, "topic": "orders"}).encode()),
            (CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"g"}'),
            (CODE.CHECK_ACCESS, encode_needs([AskedNeed("Topic", "orders", ("Pub", "Sub"))])),
            (CODE.LITE_SUBSCRIPTION_CTL, json.dumps({"subscriptionSet": [lite]}).encode()),
        ):
            assert (await poor.ask(code, body)).code == NO_PERMISSION, code


async def test_what_a_group_wants_of_a_topic_is_told_to_its_users_alone(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        looks = await here.user("looks", allow("Topic:orders", "Get"))
        assert (await here.admin.send("orders", b"1")).code == 0
        wanted = SubscriptionData("orders", "secret-tag")
        heartbeat = Heartbeat("a@1", [], [ConsumerData("theirs", subscriptions=[wanted])])
        assert (await here.admin.ask(CODE.HEART_BEAT, encode_heartbeat(heartbeat))).code == 0
        asked: dict[str, Any] = {"topic": "orders", "queueId": 0, "index": 0, "count": 1}
        units = await looks.ask(CODE.QUERY_CONSUME_QUEUE, **asked)
        assert units.code == 0
        assert json.loads(units.body)["queueData"]
        of_group = await looks.ask(CODE.QUERY_CONSUME_QUEUE, consumerGroup="theirs", **asked)
        assert of_group.code == NO_PERMISSION
        await here.rules("looks", allow("Group:theirs", "Get"))
        of_group = await looks.ask(CODE.QUERY_CONSUME_QUEUE, consumerGroup="theirs", **asked)
        assert json.loads(of_group.body)["subscriptionData"]["subString"] == "secret-tag"


@pytest.mark.parametrize("code", [CODE.GET_CONSUMER_RUNNING_INFO, CODE.CONSUME_MESSAGE_DIRECTLY])
async def test_a_consumer_is_not_shown_the_signature_of_who_asks_for_it(
    tmp_path: Path, code: RequestCode
) -> None:
    """It signs values alone: with it the consumer could ask for other things in that name."""
    async with guarded(tmp_path) as here:
        sent = await here.admin.send("orders", b"1")
        thief = await here.user("thief", allow("Topic:orders", "Sub"), allow("Group:g", "Sub"))
        wanted = [ConsumerData("g", subscriptions=[SubscriptionData("orders")])]
        beat = encode_heartbeat(Heartbeat("chosen", [], wanted))
        assert (await thief.ask(CODE.HEART_BEAT, beat)).code == 0
        thief.answers = True
        of: dict[str, Any] = {"consumerGroup": "g", "clientId": "chosen"}
        of |= {"jstackEnable": "false", "msgId": sent.fields["msgId"]}
        proof: dict[str, Any] = {
            "onBehalfOf": "thief",
            "callerDate": "now",
            "callerHost": "127.0.0.1",
        }
        proof["callerSignature"] = hmac.digest(b"thief-secret", b"now", "sha1").hex()
        assert (await here.admin.ask(code, **of)).code == 0
        await here.rules("thief", allow("Group:g", "All"))
        assert (await here.admin.ask(code, **of, **proof)).code == 0
        shown = [one.fields for one in thief.notices if one.code == code]
        assert shown == 2 * [{**of, "brokerName": "broker-a"}]


async def test_a_message_is_not_given_to_a_consumer_whose_user_may_not_have_it(
    tmp_path: Path,
) -> None:
    """A member stays in its group for two minutes after its user was denied, or removed."""
    async with guarded(tmp_path) as here:
        sent = await here.admin.send("orders", b"1")
        reader = await here.user("reader", allow("Topic:orders", "Sub"), allow("Group:g", "Sub"))
        wanted = [ConsumerData("g", subscriptions=[SubscriptionData("orders")])]
        beat = encode_heartbeat(Heartbeat("chosen", [], wanted))
        assert (await reader.ask(CODE.HEART_BEAT, beat)).code == 0
        reader.answers = True
        of: dict[str, Any] = {"consumerGroup": "g", "clientId": "chosen"}
        of |= {"msgId": sent.fields["msgId"], "jstackEnable": "false"}
        both = (CODE.GET_CONSUMER_RUNNING_INFO, CODE.CONSUME_MESSAGE_DIRECTLY)
        assert [await here.ask(code, **of) for code in both] == [0, 0]
        await here.rules("reader", {**allow("Topic:orders", "Sub"), "decision": "Deny"})
        assert [await here.ask(code, **of) for code in both] == [0, 1]
        assert await here.ask(CODE.AUTH_DELETE_USER, username="reader") == 0
        assert [await here.ask(code, **of) for code in both] == [1, 1]
        assert len([one for one in reader.notices if one.code in both]) == 3


async def test_queues_are_locked_in_topics_that_a_user_may_consume_alone(tmp_path: Path) -> None:
    """Locks are counted for the whole broker: names without end would use them up."""
    async with guarded(tmp_path) as here:
        reader = await here.user("reader", allow("Topic:orders", "Sub"), allow("Group:g", "Sub"))
        for topics, code in (
            (["orders", "%RETRY%g"], 0),
            (["orders", "made-up"], NO_PERMISSION),
            (["%RETRY%theirs"], NO_PERMISSION),
        ):
            queues = [{"topic": one, "brokerName": "broker-a", "queueId": 0} for one in topics]
            lock = {"consumerGroup": "g", "clientId": "reader@1", "mqSet": queues}
            body = json.dumps(lock).encode()
            assert (await reader.ask(CODE.LOCK_BATCH_MQ, body)).code == code, topics
            assert (await reader.ask(CODE.UNLOCK_BATCH_MQ, body)).code == 0


async def test_messages_of_others_are_not_told_by_their_positions(tmp_path: Path) -> None:
    """Positions can be guessed: by id, sent back to another group, or given to a consumer."""
    async with guarded(tmp_path) as here:
        sent = await here.admin.send("secrets", b"payload")
        position = int(sent.fields["msgId"][-16:], 16)
        thief = await here.user("thief", allow("Topic:mine", "All"), allow("Group:mine", "All"))
        assert (await thief.ask(CODE.VIEW_MESSAGE_BY_ID, offset=position)).code == NO_PERMISSION
        back: dict[str, Any] = {
            "group": "mine",
            "offset": position,
            "delayLevel": 0,
            "originTopic": "mine",
        }
        assert (await thief.ask(CODE.CONSUMER_SEND_MSG_BACK, **back)).code == NO_PERMISSION
        direct: dict[str, Any] = {
            "consumerGroup": "mine",
            "clientId": "c",
            "msgId": sent.fields["msgId"],
        }
        assert (await thief.ask(CODE.CONSUME_MESSAGE_DIRECTLY, **direct)).code == NO_PERMISSION
        await here.rules("thief", allow("Topic:secrets", "Sub"))
        assert b"payload" in (await thief.ask(CODE.VIEW_MESSAGE_BY_ID, offset=position)).body


async def test_a_refusal_does_not_tell_whether_a_message_is_at_a_position(tmp_path: Path) -> None:
    """Neither by its code nor by its words, which would name the topic as well."""
    async with guarded(tmp_path) as here:
        sent = await here.admin.send("secrets", b"payload")
        thief = await here.user("thief", allow("Topic:mine", "All"), allow("Group:mine", "All"))
        reader = await here.user("reader", allow("Topic:*", "Sub"), allow("Group:mine", "All"))
        there = sent.fields["msgId"]
        back: dict[str, Any] = {"group": "mine", "delayLevel": 0, "originTopic": "mine"}
        direct: dict[str, Any] = {"consumerGroup": "mine", "clientId": "c"}

        async def told(client: Client, message: str) -> list[tuple[int, str | None]]:
            at = int(message[-16:], 16)
            replies = [
                await client.ask(CODE.VIEW_MESSAGE_BY_ID, offset=at),
                await client.ask(CODE.CONSUMER_SEND_MSG_BACK, offset=at, **back),
                await client.ask(CODE.CONSUME_MESSAGE_DIRECTLY, msgId=message, **direct),
            ]
            return [(one.code, one.remark) for one in replies]

        nowhere = there[:-16] + f"{1 << 40:016X}"
        told_there = await told(thief, there)
        assert told_there == await told(thief, nowhere)
        assert {code for code, _remark in told_there} == {NO_PERMISSION}
        assert "secrets" not in repr(told_there)
        # One that may read all topics is told that nothing is there.
        assert {code for code, _remark in await told(reader, nowhere)} == {1}


async def test_a_refusal_does_not_tell_whether_a_transaction_is_at_a_position(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as here:
        fields = send_fields("secrets")
        fields["i"] += "\x02TRAN_MSG\x01true\x02PGROUP\x01tellers"
        assert (await here.admin.ask(CODE.SEND_MESSAGE_V2, b"half", **fields)).code == 0
        (position,) = here.broker.machine.state[TRANSACTIONS].halves
        thief = await here.user("thief", allow("Topic:mine", "All"))

        async def told(at: int) -> tuple[int, str | None]:
            end: dict[str, Any] = {"producerGroup": "tellers", "commitLogOffset": at}
            reply = await thief.ask(
                CODE.END_TRANSACTION, **end, tranStateTableOffset=0, commitOrRollback=8
            )
            return reply.code, reply.remark

        told_there = await told(position)
        assert told_there == await told(1 << 40)
        assert told_there[0] == NO_PERMISSION
        assert "secrets" not in repr(told_there)


async def test_offsets_and_times_of_a_topic_are_not_told_to_users_of_a_group_alone(
    tmp_path: Path,
) -> None:
    """A group may name any topic: one that it has never read is not its users' therefore."""
    async with guarded(tmp_path) as here:
        assert (await here.admin.send("secrets", b"1")).code == 0
        thief = await here.user("thief", allow("Group:mine", "All"))
        body = b'{"groupName":"mine"}'
        assert (await here.admin.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == 0
        of: dict[str, Any] = {"group": "mine", "consumerGroup": "mine"}
        reset: dict[str, Any] = {"topic": "secrets", "timestamp": -1, "isForce": "true", **of}
        asked: list[tuple[int, dict[str, Any]]] = [
            (CODE.INVOKE_BROKER_TO_RESET_OFFSET, reset),
            (CODE.QUERY_CONSUME_TIME_SPAN, {"topic": "secrets", **of}),
            (CODE.GET_CONSUME_STATS, {"topic": "secrets", **of}),
            (CODE.GET_CONSUME_STATS, {"topicList": "secrets;", **of}),
        ]
        for code, fields in asked:
            assert (await thief.ask(code, **fields)).code == NO_PERMISSION, code
        assert (await thief.ask(CODE.GET_CONSUME_STATS, **of)).code == 0
        await here.rules("thief", allow("Topic:secrets", "Sub"))
        for code, fields in asked:
            assert (await thief.ask(code, **fields)).code == 0, code


async def test_a_producer_is_asked_only_about_messages_that_it_may_send(tmp_path: Path) -> None:
    """Anybody may join a producer group, and the question has the message in it."""
    async with guarded(tmp_path) as here:
        fields = send_fields("bank")
        fields["i"] += "\x02TRAN_MSG\x01true\x02PGROUP\x01tellers"
        fields["f"] = 4
        sent = await here.admin.ask(CODE.SEND_MESSAGE_V2, b"half", **fields)
        assert sent.code == 0
        thief, teller = (
            await here.user("thief"),
            await here.user("teller", allow("Topic:bank", "Pub")),
        )
        beat = encode_heartbeat(Heartbeat("t@1", ["tellers"], []))
        for client in (thief, teller):
            assert (await client.ask(CODE.HEART_BEAT, beat)).code == 0
        (position,) = here.broker.machine.state[TRANSACTIONS].halves
        end: dict[str, Any] = {
            "producerGroup": "tellers",
            "commitLogOffset": position,
            "commitOrRollback": 8,
        }
        refused = await thief.ask(CODE.END_TRANSACTION, **end, tranStateTableOffset=0)
        assert refused.code == NO_PERMISSION
        for _ in range(2):  # each member of the group in turn
            here.broker.parts[CHECKS]._ask_now(position)
        await until(lambda: _noticed(teller))
        assert {one.code for one in teller.notices} == {CODE.CHECK_TRANSACTION_STATE}
        assert thief.notices == []
        # How it has ended is told to those alone that may end it.
        for _ in range(2):  # its end, and the same once more
            ended = await teller.ask(CODE.END_TRANSACTION, **end, tranStateTableOffset=0)
            assert ended.code == 0
        for how in (8, 12):
            end["commitOrRollback"] = how
            refused = await thief.ask(CODE.END_TRANSACTION, **end, tranStateTableOffset=0)
            assert refused.code == NO_PERMISSION


async def test_a_user_without_rights_uses_up_no_questions_about_transactions(
    tmp_path: Path,
) -> None:
    """Anybody may join a producer group, with many members. After fifteen questions a transaction
    is given up: those that no producer was asked must not count.
    """
    clock = Clock()
    async with guarded(tmp_path, clock=clock) as here:
        fields = send_fields("bank")
        fields["i"] += "\x02TRAN_MSG\x01true\x02PGROUP\x01tellers"
        assert (await here.admin.ask(CODE.SEND_MESSAGE_V2, b"half", **fields)).code == 0
        thief = await here.user("thief")
        for number in range(20):
            beat = encode_heartbeat(Heartbeat(f"t@{number}", ["tellers"], []))
            assert (await thief.ask(CODE.HEART_BEAT, beat)).code == 0
        halves, checks = here.broker.machine.state[TRANSACTIONS].halves, here.broker.parts[CHECKS]
        (position,) = halves
        for _ in range(3):
            clock.now_ms += 60_000
            checks.look()
            await here.admin.send("orders", b"what is applied behind it")
        assert halves[position].checks == 0
        teller = await here.user("teller", allow("Topic:bank", "Pub"))
        beat = encode_heartbeat(Heartbeat("teller", ["tellers"], []))
        assert (await teller.ask(CODE.HEART_BEAT, beat)).code == 0
        checks.look()
        await until(lambda: _noticed(teller))
        assert (halves[position].checks, thief.notices) == (1, [])


async def _noticed(client: Client) -> bool:
    return bool(client.notices)


@pytest.mark.feature("F56")
async def test_a_change_of_rules_counts_at_once_also_for_pulls_that_wait(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here, trio.open_nursery() as nursery:
        assert (await here.admin.send("orders", b"1")).code == 0
        reader = await here.user("reader", allow("*", "Sub"))
        waits = {"sysFlag": 6, "suspendTimeoutMillis": 15000}
        replies = []

        async def pull() -> None:
            replies.append(await reader.pull("orders", 1, **waits))

        nursery.start_soon(pull)
        await until(lambda: _holds(here.broker))
        deny = {"resource": "Topic:orders", "actions": ["All"], "decision": "Deny"}
        await here.rules("reader", deny)
        with trio.fail_after(5):
            while not replies:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert replies[0].code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert (await reader.pull("orders", 1, **waits)).code == NO_PERMISSION
        assert (await here.ask(CODE.AUTH_DELETE_USER, username="reader")) == 0
        refused = await reader.pull("orders", 0)
        assert (refused.code, "unknown" in (refused.remark or "")) == (NO_PERMISSION, True)


async def test_a_pop_of_lite_topics_that_waits_while_its_right_is_taken_away_gets_nothing(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as here, trio.open_nursery() as nursery:
        await here.lite_parent("chats", "agents")
        reader = await here.user("reader", allow("*", "Sub"))
        wanted: dict[str, Any] = {"action": "PARTIAL_ADD", "group": "agents", "clientId": "c"}
        wanted |= {"topic": "chats", "liteTopicSet": ["a"], "version": 1}
        body = json.dumps({"subscriptionSet": [wanted]}).encode()
        assert (await reader.ask(CODE.LITE_SUBSCRIPTION_CTL, body)).code == 0
        pop: dict[str, Any] = {"clientId": "c", "consumerGroup": "agents", "topic": "chats"}
        pop |= {"maxMsgNum": 1, "invisibleTime": 60000, "pollTime": 15000, "bornTime": 10**15}
        replies: list[Command] = []

        async def wait() -> None:
            replies.append(await reader.ask(CODE.POP_LITE_MESSAGE, attemptId="a", **pop))

        async def waits() -> bool:
            return len(here.broker.parts[LITE_POPPING]) == 1

        nursery.start_soon(wait)
        await until(waits)
        assert await here.ask(CODE.AUTH_DELETE_USER, username="reader") == 0
        fields = send_fields("chats")
        fields["i"] += "\x02__LITE_TOPIC\x01a"
        assert (await here.admin.ask(CODE.SEND_MESSAGE_V2, b"secret", **fields)).code == 0
        await until(lambda: _has(replies))
        assert [(one.code, one.body) for one in replies] == [(ResponseCode.POLLING_TIMEOUT, b"")]
        assert here.broker.machine.state[LITE].message_count == 1


def test_a_pull_whose_client_reads_late_is_answered_by_the_rules_of_then() -> None:
    """Answers wait until a client has read what came before."""
    with broker_in_memory() as broker:
        broker.ask(CODE.SEND_MESSAGE_V2, b"1", **send_fields("T"))
        pull: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 0}
        pull |= {"maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "subVersion": 0}
        pull |= {"suspendTimeoutMillis": 0, "subscription": "*"}
        late: list[Callable[[], None]] = []
        client: Any = broker.client
        client.is_behind, client.when_taken = True, late.append
        for opaque in (900, 901):
            command = Command(11, {name: str(one) for name, one in pull.items()}, opaque=opaque)
            broker.together([command])
            if opaque == 900:
                broker.parts[ACCESS_GUARD].change_administrator(ADMIN)
        for answer in late:
            answer()
        judged_again, answered = broker.answers.pop(900), broker.answers.pop(901)
        assert (judged_again.code, judged_again.body) == (ResponseCode.PULL_RETRY_IMMEDIATELY, b"")
        assert (answered.code, answered.body != b"") == (0, True)


async def _holds(broker: Broker) -> bool:
    return broker.parts.figures()["pullHeld"] == "1"


async def test_a_search_that_waits_while_its_right_is_taken_away_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, answering, replies = trio.Event(), Searches.answering, []
    is_held = True

    def late(self: Searches, search: Search) -> Iterator[None]:
        begun.set()
        while is_held:
            yield
        yield from answering(self, search)

    monkeypatch.setattr(Searches, "answering", late)
    async with guarded(tmp_path) as here, trio.open_nursery() as nursery:
        fields = send_fields("orders")
        fields["i"] += "\x02KEYS\x01k"
        assert (await here.admin.ask(CODE.SEND_MESSAGE_V2, b"1", **fields)).code == 0
        reader = await here.user("reader", allow("Topic:orders", "Sub"))
        asked: dict[str, Any] = {"topic": "orders", "key": "k", "maxNum": 32}
        asked |= {"beginTimestamp": 0, "endTimestamp": 1 << 62}

        async def search() -> None:
            replies.append(await reader.ask(CODE.QUERY_MESSAGE, **asked))

        nursery.start_soon(search)
        await begun.wait()
        assert await here.ask(CODE.AUTH_DELETE_ACL, subject="User:reader") == 0
        is_held = False
        await until(lambda: _has(replies))
    assert [(one.code, one.body) for one in replies] == [(NO_PERMISSION, b"")]


async def _has(replies: list[Command]) -> bool:
    return bool(replies)


async def test_only_super_users_change_super_users_and_nobody_the_administrator(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as here:
        operator = await here.user("operator", allow("Cluster:*", "All"))

        async def put(client: Client, code: int, name: str, **more: str) -> int:
            body = json.dumps({"username": name, **more}).encode()
            return (await client.ask(code, body, username=name)).code

        create, update = CODE.AUTH_CREATE_USER, CODE.AUTH_UPDATE_USER
        assert await put(operator, create, "root", password="root-secret", userType="Super") == 16
        assert await put(operator, update, "operator", userType="Super") == 16
        assert await put(here.admin, update, "admin", userStatus="disable") == 29
        assert await put(here.admin, create, "admin", password="some-secret") == 29
        assert await here.ask(CODE.AUTH_DELETE_USER, username="admin") == 1
        assert await put(here.admin, create, "root", password="root-secret", userType="Super") == 0
        assert await put(operator, update, "root", password="mine-now") == 16
        assert (await operator.ask(CODE.AUTH_DELETE_USER, username="root")).code == 16
        assert (await operator.ask(CODE.AUTH_DELETE_ACL, subject="User:root")).code == 16
        assert await put(here.admin, create, "root", password="root-secret") == 1
        assert await put(here.admin, update, "nobody", password="some-secret") == 1


def files_in(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


async def test_secrets_are_told_to_super_users_alone_and_are_nowhere_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with guarded(tmp_path) as here:
        reader = await here.user("reader", allow("Cluster:*", "Get"))
        told = await here.told(CODE.AUTH_GET_USER, username="reader")
        assert told["password"] == "reader-secret"
        own = json.loads((await reader.ask(CODE.AUTH_GET_USER, username="reader")).body)
        listed = json.loads((await reader.ask(CODE.AUTH_LIST_USER)).body)
        assert "password" not in own
        assert listed == [{"username": "reader", "userType": "Normal", "userStatus": "enable"}]
        state = here.broker.machine.state
        chunks = list(captured(state))
        assert restored(chunks, REGISTRY, None)[ACCESS] == state[ACCESS]
    for data in (b"".join(chunks), *files_in(tmp_path)):
        assert b"reader-secret" not in data
        assert b"admin-secret" not in data
    assert "-secret" not in caplog.text
    assert "-secret" not in repr(FILE) + repr(ADMIN)


async def test_rules_are_told_as_they_were_given_and_taken_one_by_one(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        await here.user(
            "reader",
            allow("Topic:a*", "Sub", "Pub", sourceIps=["10.0.0.0/8"]),
            allow("Group:g", "Sub"),
        )
        await here.rules("reader", allow("*", "Get"), policy="Default")
        told = await here.told(CODE.AUTH_GET_ACL, subject="User:reader")
        assert told["subject"] == "User:reader"
        assert [one["policyType"] for one in told["policies"]] == ["Custom", "Default"]
        assert told["policies"][0]["entries"][0] == {
            "resource": "Topic:a*",
            "actions": ["Pub", "Sub"],
            "sourceIps": ["10.0.0.0/8"],
            "decision": "Allow",
        }
        few = await here.told(CODE.AUTH_LIST_ACL, subjectFilter="read", resourceFilter="Group")
        assert [len(policy["entries"]) for policy in few[0]["policies"]] == [1]
        gone = {"subject": "User:reader", "policyType": "Custom", "resource": "Topic:a*"}
        assert await here.ask(CODE.AUTH_DELETE_ACL, **gone) == 0
        assert await here.ask(CODE.AUTH_DELETE_ACL, **gone) == 1
        assert await here.ask(CODE.AUTH_DELETE_ACL, subject="User:reader") == 0
        assert await here.told(CODE.AUTH_GET_ACL, subject="User:reader") is None
        assert await here.told(CODE.AUTH_LIST_ACL) == []


def _needs(*needs: tuple[str, str, list[str]]) -> dict[str, Any]:
    return {"needs": [{"kind": kind, "name": name, "actions": how} for kind, name, how in needs]}


async def test_a_proxy_asks_whether_a_user_may_do_all_of_some_things(tmp_path: Path) -> None:
    either, group = ("Topic", "orders", ["Pub", "Sub"]), ("Group", "g", ["Sub"])
    async with guarded(tmp_path) as here:
        reader = await here.user("reader", allow("Topic:orders", "Sub"), allow("Group:g", "Sub"))
        poor = await here.user("poor")
        for client, needs, code in (
            (reader, _needs(either), 0),
            (reader, _needs(either, group), 0),
            (reader, _needs(group, ("Topic", "orders", ["Pub"])), NO_PERMISSION),
            (reader, _needs(("Group", "h", ["Sub"])), NO_PERMISSION),
            (reader, _needs(), 0),
            (poor, _needs(), 0),
            (poor, _needs(either), NO_PERMISSION),
            (here.admin, _needs(either, group), 0),
            (reader, _needs(("Topic", "orders", [])), NO_PERMISSION),
            (reader, _needs(("Topics", "orders", ["Sub"])), ResponseCode.INVALID_PARAMETER),
            (reader, _needs(("Topic", "orders", ["Read"])), ResponseCode.INVALID_PARAMETER),
        ):
            reply = await client.ask(CODE.CHECK_ACCESS, json.dumps(needs).encode())
            assert reply.code == code, needs
        for body in (b"", b"[]", b'{"needs":1}', json.dumps(_needs(*[either] * 1026)).encode()):
            reply = await reader.ask(CODE.CHECK_ACCESS, body)
            assert reply.code not in (0, NO_PERMISSION), body[:20]
        nobody = await here.client(None).ask(CODE.CHECK_ACCESS, json.dumps(_needs()).encode())
        assert nobody.code == NO_PERMISSION


MALFORMED: tuple[tuple[int, dict[str, str], bytes], ...] = (
    (CODE.AUTH_CREATE_USER, {}, b""),
    (CODE.AUTH_CREATE_USER, {}, b"[]"),
    (CODE.AUTH_CREATE_USER, {"username": "a:b"}, b'{"password":"long-enough"}'),
    (CODE.AUTH_CREATE_USER, {"username": 65 * "a"}, b'{"password":"long-enough"}'),
    (CODE.AUTH_CREATE_USER, {"username": "a"}, b'{"password":"short"}'),
    (CODE.AUTH_CREATE_USER, {"username": "a"}, b'{"password":"\\u0000\\u0001\\u0002345678"}'),
    (CODE.AUTH_CREATE_USER, {"username": "a"}, b'{"password":"long-enough","userType":"God"}'),
    (CODE.AUTH_CREATE_ACL, {"subject": "reader"}, b'{"policies":[]}'),
    (CODE.AUTH_CREATE_ACL, {"subject": "User:admin"}, b'{"policies":[{"entries":[{}]}]}'),
    (CODE.AUTH_CREATE_ACL, {"subject": "User:admin"}, b'{"policies":[{},{},{}]}'),
    (CODE.AUTH_CREATE_ACL, {"subject": "User:admin"}, b'{"policies":[{"entries":[]}]}'),
    (CODE.AUTH_DELETE_ACL, {"subject": "User:admin", "resource": "*:*"}, b""),
)


async def test_a_malformed_change_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        before = here.broker.machine.state[ACCESS].access_changes
        for code, fields, body in MALFORMED:
            reply = await here.admin.ask(code, body, **fields)
            assert reply.code in (1, 29), body
        assert here.broker.machine.state[ACCESS].access_changes == before


async def test_the_log_says_who_changes_what_and_never_a_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "broker.audit")
    async with guarded(tmp_path) as here:
        owner = await here.user("owner", allow("Topic:mine*", "All"))
        asked: dict[str, Any] = {
            "readQueueNums": 1,
            "writeQueueNums": 1,
            "perm": 6,
            "defaultTopic": "TBW102",
        }
        asked |= {"topic": "mine", "topicFilterType": "SINGLE_TAG"}
        assert (await owner.ask(CODE.UPDATE_AND_CREATE_TOPIC, **asked)).code == 0
        assert (await owner.send("mine", b"1")).code == 0
        assert (await owner.ask(CODE.DELETE_TOPIC_IN_BROKER, topic="yours")).code == 16
    said = [one.getMessage() for one in caplog.records if one.name == "broker.audit"]
    assert [line.split(" at ")[0] for line in said] == ["admin", "admin", "owner"]
    assert "asks for AUTH_CREATE_USER: username=owner" in said[0]
    assert "asks for AUTH_UPDATE_ACL: subject=User:owner" in said[1]
    assert "asks for UPDATE_AND_CREATE_TOPIC: topic=mine" in said[2]
    assert "secret" not in caplog.text


async def test_a_signature_covers_fields_and_body(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        command_fields = send_fields("orders")
        stranger = here.client(None)
        signed = Command(310, {name: str(value) for name, value in command_fields.items()}, b"1")
        ADMIN.sign(signed)
        assert (await stranger.ask(310, b"1", **signed.fields)).code == 0
        assert (await stranger.ask(310, b"2", **signed.fields)).code == NO_PERMISSION
        changed = {**signed.fields, "b": "others"}
        assert (await stranger.ask(310, b"1", **changed)).code == NO_PERMISSION
        without = {name: text for name, text in signed.fields.items() if name != SIGNATURE}
        assert (await stranger.ask(310, b"1", **without)).code == NO_PERMISSION
        empty = {**signed.fields, ACCESS_KEY: ""}
        assert (await stranger.ask(310, b"1", **empty)).code == NO_PERMISSION


def test_a_sealed_secret_opens_for_its_user_by_its_key_alone() -> None:
    seal, nonce = SecretSeal(bytes(32)), bytes(NONCE_BYTES)
    sealed = seal.sealed("a", "secret!", nonce)
    assert seal.opened("a", sealed) == b"secret!"
    for user, box, opener in (
        ("b", sealed, seal),
        ("a", sealed, SecretSeal(bytes([1] * 32))),
        ("a", sealed[:-8] + "AAAAAAA=", seal),
        ("a", "", seal),
        ("a", "no base64", seal),
    ):
        with pytest.raises(SealBroken):
            opener.opened(user, box)


async def test_without_a_file_all_is_permitted_and_users_cannot_be_made(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.listen))
        assert (await client.send("orders", b"1")).code == 0
        body = b'{"username":"a","password":"long-enough"}'
        refused = await client.ask(CODE.AUTH_CREATE_USER, body, username="a")
        assert (refused.code, "access control is off" in (refused.remark or "")) == (1, True)
