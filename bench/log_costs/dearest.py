"""The costliest entries of each kind of command, and of message records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from bench.log_costs.full_log import (
    AT_MS,
    DEAD,
    DUE_MS,
    EMPTY,
    GROUP,
    LITE,
    TOPIC,
    WIDE,
    FullLog,
    user_rules,
)
from broker.access.commands import (
    DeleteRules,
    DeleteUser,
    PutRules,
    PutUser,
    SealedSecret,
)
from broker.assignment.commands import SetMode
from broker.audit.commands import AuditRequest
from broker.dead_letters.commands import Redrive
from broker.delay.commands import Delay, Deliver, DropDelayed, MoveDelayed
from broker.filters.commands import PutFilter
from broker.filters.condition import MAX_CONDITION_CHARACTERS
from broker.formats.commands import RaiseFormat
from broker.groups.commands import DeleteGroup, Forbid, PutGroup
from broker.groups.config import ConsumerGroup
from broker.lite.commands import (
    AckLite,
    EndLite,
    HideLite,
    LiteGiven,
    LiteMessage,
    PopLite,
    PutLite,
    ResetLite,
)
from broker.lite.limits import MAX_ENDED_AT_ONCE, MAX_LITE_ACKS
from broker.locks.commands import LockQueues
from broker.locks.state import LOCK_MS
from broker.log.entry import FORMAT_VERSION
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.offsets.commits import MAX_OFFSETS_PER_ENTRY
from broker.pop.commands import AckPopped, BuryPopped, HidePopped, Pop, PoppedMessage
from broker.relays.commands import LeadFrom
from broker.resets.commands import EndReset, ResetOffsets
from broker.retention.commands import KeepLogFrom
from broker.sends.entry_packing import PACKED_BYTES
from broker.settings.commands import ChangeSettings
from broker.topics.commands import DeleteTopic, PutTopic
from broker.topics.names import GIVEN_UP_TOPIC, HALF_TOPIC, TIMER_TOPIC
from broker.transactions.commands import (
    Checked,
    Commit,
    GiveUp,
    MoveHalf,
    Prepare,
    Resume,
    Rollback,
)
from broker.transactions.state import MAX_ENDS
from dledger import Entry
from remoting.bodies.consumer_group import MAX_LOCKED_QUEUES
from remoting.bodies.pop import MAX_ACKS
from remoting.bodies.topic_config import TopicConfig
from remoting.message.batch import MAX_BATCH_MESSAGES

# Makes an entry, from a number that is new each time; the entry is applied before the next call.
Dearest: TypeAlias = Callable[[FullLog, int], Entry]

_LARGE: Final = 1 << 30  # a limit that no command reaches

# About the size of the shortest messages.
_SMALL_RECORD_BYTES: Final = 96


def _lock(full: FullLog, number: int, *, is_lock: bool, time_ms: int = 1) -> Entry:
    queues = [(f"t{at}", 0) for at in range(MAX_LOCKED_QUEUES)]
    return full.command(LockQueues(f"{GROUP}", "c", is_lock, time_ms, queues))


def _commit_offsets(full: FullLog, number: int) -> Entry:
    topics = full.sizes.topics
    offsets = [
        CommittedOffset(f"new{number}", f"t{at % topics}", 0, at)
        for at in range(MAX_OFFSETS_PER_ENTRY)
    ]
    return full.command(CommitOffsets(offsets, AT_MS, full.end))


def _checked(full: FullLog, _number: int) -> Entry:
    return full.command(Checked(DUE_MS + 1, tuple(full.halves[-64:])))


def _popped(full: FullLog, number: int) -> Entry:
    # 32 messages, the most of a pop, behind many in flight
    first = full.sizes.flying + 32 * number
    offsets = tuple(range(first, first + 32))
    times = AT_MS, DUE_MS
    return full.command(
        Pop(GROUP, WIDE, 0, *times, first, first + 32, offsets, None, False, full.end)
    )


def _popped_anew(full: FullLog, number: int) -> Entry:
    times = AT_MS, DUE_MS
    return full.command(Pop(f"g{1 + number}", TOPIC, 0, *times, 0, 1, (0,), None, True, full.end))


def _acknowledged(full: FullLog, number: int) -> Entry:
    at = MAX_ACKS * number
    return full.command(
        AckPopped([PoppedMessage(GROUP, WIDE, 0, at + one, AT_MS) for one in range(MAX_ACKS)])
    )


def _hidden(full: FullLog, number: int) -> Entry:
    message = PoppedMessage(GROUP, WIDE, 0, number, AT_MS)
    return full.command(HidePopped(message, AT_MS, DUE_MS))


def _lite_popped(full: FullLog, number: int) -> Entry:
    given = [LiteGiven(f"s{32 * number + at}", 0, 1, 0, True) for at in range(32)]
    return full.command(PopLite("g1", LITE, AT_MS, DUE_MS, "", given, full.end))


def _lite_acknowledged(full: FullLog, number: int) -> Entry:
    messages = [
        LiteMessage(GROUP, LITE, f"s{(MAX_LITE_ACKS * number + at) % full.sizes.lite}", 0, AT_MS)
        for at in range(MAX_LITE_ACKS)
    ]
    return full.command(AckLite(messages))


def _lite_reset(full: FullLog, _number: int) -> Entry:
    offsets = [(f"s{at}", 0) for at in range(256)]
    return full.command(ResetLite(GROUP, LITE, offsets, AT_MS))


def _lite_ended(full: FullLog, number: int) -> Entry:
    first = MAX_ENDED_AT_ONCE * (number + 1)
    names = [f"s{full.sizes.lite - first + at}" for at in range(MAX_ENDED_AT_ONCE)]
    return full.command(EndLite(LITE, names, DUE_MS, 0, AT_MS))


def _buried(full: FullLog, number: int) -> Entry:
    message = PoppedMessage(GROUP, WIDE, 0, full.sizes.flying - 1 - number, AT_MS)
    return full.record(DEAD, 0, BuryPopped(message))


def _reset(full: FullLog, _number: int) -> Entry:
    offsets = dict.fromkeys(range(full.sizes.queues), 1)
    return full.command(ResetOffsets(GROUP, WIDE, offsets, AT_MS, full.end))


def _keep(full: FullLog, number: int) -> Entry:
    # Messages wait, so the command is refused after all its work.
    return full.command(KeepLogFrom(full.next_index, full.end, AT_MS))


def _redriven(full: FullLog, number: int) -> Entry:
    # Every second offset, so that each is a run of its own.
    offset = 2 * number
    return full.record(TOPIC, 0, Redrive(DEAD, 0, offset, full.dead[0] + 1, 0))


_SECRET: Final = SealedSecret("s" * 200)


def _rules_given(full: FullLog, number: int) -> Entry:
    rules = user_rules(full.sizes.rules_of_user, f"{number}x")
    # They would be too many, so they are refused after all the work.
    return full.command(PutRules("u1", "Custom", rules))


def _rules_taken(full: FullLog, number: int) -> Entry:
    return full.command(DeleteRules(f"u{number + 1}", "", ""))


def _user_gone(full: FullLog, number: int) -> Entry:
    return full.command(DeleteUser(f"u{full.sizes.users - 1 - number}"))


DEAREST: Final[Mapping[type[Any], Mapping[str, Dearest]]] = {
    PutTopic: {
        "a new topic": lambda full, number: full.command(
            PutTopic(TopicConfig(f"new{number}", 1024, 1024), AT_MS, False, _LARGE)
        )
    },
    DeleteTopic: {
        "with something of all groups": lambda full, number: full.command(
            DeleteTopic(f"t{number}", AT_MS, with_locks=True)
        ),
        "with the most queues and their files": lambda full, number: full.command(
            DeleteTopic(WIDE, AT_MS, with_locks=True)
        ),
    },
    PutGroup: {
        "a new group": lambda full, number: full.command(
            PutGroup(ConsumerGroup(f"new{number}"), max_groups=_LARGE)
        )
    },
    DeleteGroup: {
        "with something in all topics": lambda full, number: full.command(
            DeleteGroup(f"g{number}", with_offsets=True, with_locks=True)
        )
    },
    CommitOffsets: {"of a new group": _commit_offsets},
    KeepLogFrom: {"before what is waited for": _keep},
    LockQueues: {
        "the most queues of one request": lambda full, number: _lock(full, number, is_lock=True),
        "when all locks have expired": lambda full, number: _lock(
            full, number, is_lock=True, time_ms=(number + 2) * LOCK_MS
        ),
        "gives up the most": lambda full, number: _lock(full, number, is_lock=False),
    },
    LeadFrom: {"": lambda full, number: full.command(LeadFrom("n0", f"host:{number}"))},
    RaiseFormat: {"": lambda full, number: full.command(RaiseFormat(FORMAT_VERSION))},
    Delay: {"": lambda full, number: full.record(TIMER_TOPIC, 0, Delay(DUE_MS - number))},
    Deliver: {
        "": lambda full, number: full.record(TOPIC, 0, Deliver(full.delayed.pop())),
    },
    MoveDelayed: {
        "": lambda full, number: full.record(TIMER_TOPIC, 0, MoveDelayed(full.delayed.pop())),
    },
    DropDelayed: {"": lambda full, number: full.command(DropDelayed(full.delayed.pop()))},
    Prepare: {"": lambda full, number: full.record(HALF_TOPIC, 0, Prepare("p", DUE_MS))},
    Commit: {
        "of a message that is delayed": lambda full, number: full.record(
            TIMER_TOPIC, 0, Commit(full.halves.pop(), DUE_MS)
        )
    },
    Rollback: {"": lambda full, number: full.command(Rollback(full.halves.pop()))},
    Checked: {"the most of one look": _checked},
    GiveUp: {"": lambda full, number: full.record(GIVEN_UP_TOPIC, 0, GiveUp(full.halves.pop()))},
    MoveHalf: {"": lambda full, number: full.record(HALF_TOPIC, 0, MoveHalf(full.halves.pop()))},
    PutFilter: {
        "the longest condition": lambda full, number: full.command(
            PutFilter(f"new{number}", TOPIC, "x" * MAX_CONDITION_CHARACTERS, 1, _LARGE)
        )
    },
    ResetOffsets: {"of the most queues": _reset},
    EndReset: {
        "": lambda full, number: full.command(EndReset(f"g{number}", TOPIC, 0, 1)),
    },
    Pop: {"behind the most that are out": _popped, "begins anew": _popped_anew},
    HidePopped: {"": _hidden},
    BuryPopped: {"behind the most that are out": _buried},
    AckPopped: {"the most of one entry": _acknowledged},
    PutLite: {
        "of a new lite topic": lambda full, number: full.record(
            LITE, 0, PutLite(f"new{number}", _LARGE, _LARGE)
        ),
        "the next of one": lambda full, number: full.record(
            LITE, 0, PutLite(f"s{number}", _LARGE, _LARGE)
        ),
    },
    PopLite: {"the most lite topics": _lite_popped},
    AckLite: {"the most of one entry": _lite_acknowledged},
    HideLite: {
        "": lambda full, number: full.command(
            HideLite(LiteMessage(GROUP, LITE, f"s{number}", 0, AT_MS), AT_MS, DUE_MS, True)
        )
    },
    ResetLite: {"the most of one step": _lite_reset},
    EndLite: {"the most of one entry": _lite_ended},
    SetMode: {
        "": lambda full, number: full.command(SetMode(TOPIC, f"new{number}", "POP", 1, _LARGE))
    },
    ChangeSettings: {
        "": lambda full, number: full.command(
            ChangeSettings({f"setting{at}": "x" * 200 for at in range(100)}, AT_MS)
        )
    },
    Resume: {
        "when the most are remembered": lambda full, number: full.record(
            HALF_TOPIC, 0, Resume(number + MAX_ENDS, "p", DUE_MS)
        )
    },
    AuditRequest: {
        "": lambda full, number: full.command(
            AuditRequest(AT_MS, "u" * 64, "p" * 80, "r" * 80, "a" * 500)
        )
    },
    PutUser: {
        "": lambda full, number: full.command(PutUser(f"n{number}", _SECRET, False, True, None))
    },
    DeleteUser: {"with the most rules": _user_gone},
    PutRules: {"the most of one user": _rules_given},
    DeleteRules: {"the most of one user": _rules_taken},
    Forbid: {
        "": lambda full, number: full.command(Forbid(f"new{number}", TOPIC, True, _LARGE)),
    },
    Redrive: {"with gaps": _redriven},
}

RECORDS: Final[Mapping[str, Dearest]] = {
    "a message": lambda full, number: full.record(TOPIC, 0),
    "the first message of a queue": lambda full, number: full.record(
        EMPTY, number % full.sizes.queues
    ),
    "messages of one queue, the most of one send": lambda full, number: full.records(
        TOPIC, [0] * MAX_BATCH_MESSAGES
    ),
    "the first messages of the most queues": lambda full, number: full.records(
        EMPTY, range(full.sizes.queues)
    ),
    "messages of the most queues, one after the other": lambda full, number: full.records(
        WIDE, [at % full.sizes.queues for at in range(PACKED_BYTES // _SMALL_RECORD_BYTES)]
    ),
}


def dearest() -> Iterator[tuple[str, Dearest]]:
    """Yield every entry of the table with its name."""
    for command, cases in DEAREST.items():
        for what, make in cases.items():
            yield (f"{command.__name__}: {what}" if what else command.__name__), make
    for what, make in RECORDS.items():
        yield f"records: {what}", make
