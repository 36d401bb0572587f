"""Whatever a leader proposes is refused once, in each way: it is done later, in the same term.

One script uses all that leaders do by themselves. It runs once undisturbed, and then once for each
append. Clients repeat what was refused.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Any, Final, cast

import pytest

from broker.access.commands import DeleteRules, DeleteUser, PutRules, PutUser
from broker.assignment.commands import SetMode
from broker.audit.commands import AuditRequest
from broker.delay.state import DELAYS
from broker.features import REGISTRY
from broker.filters.commands import PutFilter
from broker.formats.commands import RaiseFormat
from broker.groups.commands import DeleteGroup, Forbid
from broker.lite.commands import AckLite, EndLite, HideLite, PopLite, PutLite, ResetLite
from broker.locks.commands import LockQueues
from broker.offsets.state import OFFSETS
from broker.pop.state import POPS
from broker.relays.commands import LeadFrom
from broker.resets.commands import EndReset, ResetOffsets
from broker.retention.commands import KeepLogFrom
from broker.serving.requests import Requests
from broker.settings.commands import ChangeSettings
from broker.topics.names import GIVEN_UP_TOPIC
from broker.transactions.state import TRANSACTIONS
from remoting.bodies.heartbeat import (
    Heartbeat,
    encode_heartbeat,
)
from remoting.wire.codes import RequestCode
from tests.broker.broker_in_memory import broker_in_memory
from tests.broker.leader_script import (
    WAYS,
    Refuse,
    Refusing,
    Script,
    by_a_full_log,
    objects_below,
)
from tests.broker.one_broker import START_MS
from tests.broker.pop.popping_broker import popped

# Longer than any pause after a refusal, until the leader tries again.
PATIENCE_S: Final = 30


def play(script: Script) -> None:
    """All that a leader does by itself or for clients, each once at least."""
    for name in ("T", "P", "gone"):
        script.topic(name)
    script.ask(RequestCode.HEART_BEAT, encode_heartbeat(Heartbeat("c", ["P"])))
    # Delayed messages: delivered, moved out of retention's way, and of a topic that goes.
    script.send("T", b"later", DELAY="1")
    script.send("T", b"at a time", TIMER_DELAY_SEC="40")
    script.send("gone", b"never", TIMER_DELAY_SEC="3")
    halves = [
        script.send("T", b"half %d" % n, TRAN_MSG="true", PGROUP=group)
        for n, group in enumerate(("P", "P", "nobody", "P"))
    ]
    late = script.send("T", b"late half", TRAN_MSG="true", PGROUP="P", TIMER_DELAY_SEC="60")
    script.end(halves[0], 8)
    script.end(halves[1], 12)
    script.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="gone")
    script.there.move_everything()
    script.now_s = (script.there.now_ms - START_MS) / 1000
    script.at(20)
    script.end(late, 8)
    # A message that fails until it is a dead letter, by pops and by being sent back.
    script.send("P", b"worn out")
    for _ in range(20):
        script.pop()
        script.at(script.now_s + 3)
    script.send("T", b"sent back")
    found = [one for one in script.there.messages("T") if one.body == b"sent back"]
    script.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        group="g",
        offset=found[0].physical_offset,
        delayLevel=-1,
    )
    script.ask(
        RequestCode.REDRIVE_DEAD_LETTERS,
        consumerGroup="g",
        target="TOPIC",
        queueId=0,
        beginOffset=0,
    )
    # Acknowledgements, offsets, and a message that is hidden longer.
    script.topic("Q")
    for _ in range(3):
        script.send("Q")
    for do in ("acknowledge", "hide", "acknowledge"):
        [one] = popped(script.pop(topic="Q", invisibleTime=5000))
        message: dict[str, Any] = {
            "consumerGroup": "g",
            "topic": "Q",
            "queueId": 0,
            "extraInfo": one.handle,
        }
        message["offset"] = one.record.queue_offset
        if do == "hide":
            code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
            script.ask(code, invisibleTime=3_600_000, **message)
        else:
            script.ask(RequestCode.ACK_MESSAGE, **message)
    committed: dict[str, Any] = {
        "consumerGroup": "h",
        "topic": "T",
        "queueId": 0,
        "commitOffset": 3,
    }
    script.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **committed)
    # What nobody ends is asked about, given up at last, and opened once more by an operator.
    script.at(script.now_s + 70)
    script.leap(100 * 3600)
    script.at(script.now_s + PATIENCE_S)
    given_up = script.there.messages(GIVEN_UP_TOPIC)
    assert given_up, "nobody said how it ends"
    lost = given_up[0]
    message_id = f"7F00000100002A9F{lost.physical_offset:016X}"
    script.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=message_id)
    script.leap(100 * 3600)
    script.at(script.now_s + PATIENCE_S)


def outcome(script: Script) -> dict[str, object]:
    """What must be the same at the end, whatever was refused on the way."""
    state = script.there.machine.state
    topics = ("T", "%DLQ%g", "%RETRY%g", GIVEN_UP_TOPIC)
    return {
        "waiting": len(state[DELAYS].waiting),
        "open": len(state[TRANSACTIONS].halves),
        "ends": Counter(end.name for end in state[TRANSACTIONS].ends.values()),
        "out": state[POPS].in_flight_count,
        "offsets": {key: dict(table) for key, table in state[OFFSETS].tables.items()},
        "in memory": kept_in_memory(script.there.requests),
        **{topic: Counter(one.body for one in script.there.messages(topic)) for topic in topics},
    }


def kept_in_memory(requests: Requests) -> Counter[str]:
    """What features keep: the sizes of their collections, and flags, by class and attribute."""
    found: Counter[str] = Counter()
    for one in objects_below(requests):
        for name, value in getattr(one, "__dict__", {}).items():
            place = f"{type(one).__name__}.{name}"
            if isinstance(value, bool):
                found[place] += value
            elif isinstance(value, set | dict | list | deque):
                found[place] += len(value)
    return +found


def played(number: int, refuse: Refuse) -> tuple[Refusing, dict[str, object]]:
    with broker_in_memory() as there:
        refusing = Refusing(there.log, number, refuse)
        script = Script(there, refusing)
        play(script)
        return refusing, outcome(script)


def undisturbed() -> tuple[Refusing, dict[str, object]]:
    refusing, wanted = played(-1, by_a_full_log)
    return refusing, wanted


def check_done_later(refusals: Iterable[tuple[int, str]], wanted: dict[str, object]) -> None:
    """Play the script with each of these refusals: an append, and the way."""
    failures = []
    in_memory = cast(Counter[str], wanted.pop("in memory")).keys()
    for number, way in refusals:
        try:
            _, found = played(number, WAYS[way])
        except AssertionError as error:
            failures.append(f"append {number}, refused {way}: {error}")
            continue
        left = cast(Counter[str], found.pop("in memory")).keys() - in_memory
        odd = {key: (found[key], wanted[key]) for key in wanted if found[key] != wanted[key]}
        if left:
            odd["left in memory"] = (left, ())
        if odd:
            failures.append(f"append {number}, refused {way}: {odd}")
    assert not failures, "\n".join(failures)


def test_all_that_a_leader_proposes_is_done_later_when_it_was_refused_once() -> None:
    refusing, wanted = undisturbed()
    ways = list(WAYS)
    check_done_later(((at, ways[at % len(ways)]) for at in range(refusing.appends)), wanted)


@pytest.mark.long
def test_all_that_a_leader_proposes_is_done_later_in_whichever_way_it_was_refused() -> None:
    refusing, wanted = undisturbed()
    check_done_later(((at, way) for at in range(refusing.appends) for way in WAYS), wanted)


# What is not in the script, with the reason.
NOT_PLAYED: Final = {
    **dict.fromkeys(
        (SetMode, DeleteGroup, Forbid, ChangeSettings, ResetOffsets, LockQueues),
        "a client asks for it, and is told that it was refused: nothing of it stays",
    ),
    PutFilter: "comes with each heartbeat once more",
    EndReset: "comes with each pull once more",
    KeepLogFrom: "see test_broker_retention",
    LeadFrom: "see test_broker_group_door",
    RaiseFormat: "see test_broker_format_gate",
    **dict.fromkeys(
        (PutLite, PopLite, AckLite, HideLite, ResetLite, EndLite), "see test_broker_lite"
    ),
    AuditRequest: "changes nothing",
    **dict.fromkeys((PutUser, DeleteUser, PutRules, DeleteRules), "see test_broker_access"),
}


def test_the_script_has_leaders_propose_every_other_kind_of_command() -> None:
    refusing, _ = undisturbed()
    commands = {one.command for one in REGISTRY.commands()}
    assert {one for one in commands if one.kind not in refusing.kinds} == NOT_PLAYED.keys()
