"""Features register themselves, and two that claim the same thing are found at the start."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from broker.errors import FeatureClash
from broker.features import REGISTRY
from broker.locks.commands import LOCK_QUEUES
from broker.locks.state import LOCKS, QueueLocks
from broker.log.state import Registry, StatePart
from broker.messages.fold import RecordFold
from broker.services import SERVICES
from broker.serving.needs import any_user
from broker.serving.requests import Requests
from broker.serving.service import Handler, Service
from remoting.wire.codes import RequestCode
from tests.broker.serving.test_broker_waiting import FakeLog

# A feature that counts what it is told, as its folder would have it.
THROW_AWAY = {
    "__init__": "",
    "commands": """
from dataclasses import dataclass
from typing import ClassVar, Final

from broker.log.command_layout import Natural
from broker.log.entry import ATTACHED_VERSION
from broker.log.state import CommandType
from broker.counted.state import COUNTED

@dataclass(frozen=True, slots=True)
class CountUp:
    kind: ClassVar[int] = 99
    since: ClassVar[int] = ATTACHED_VERSION

    topic: str
    count: Natural

def _count(state, folded, command, entry):
    state[COUNTED].counted += command.count

COUNT_UP: Final = CommandType(CountUp, _count)
""",
    "state": """
from dataclasses import dataclass
from typing import Final

from broker.log.state import Registry
from broker.log.state import StatePart

@dataclass(slots=True)
class Counted:
    counted: int = 0

COUNTED: Final = StatePart("counted", Counted, numbers=("counted",))
""",
    "feature": """
from broker.counted.state import COUNTED
from broker.serving.needs import any_user
from broker.serving.service import Handler, Service

def service(parts):
    def told(origin, command):
        return command.reply(fields={"counted": str(parts.state[COUNTED].counted)})

    return Service(handlers={31099: Handler(told, any_user)})
""",
}
WITH_IT = """
import sys
import broker

broker.__path__.append(sys.argv[1])
from broker.counted.commands import CountUp
from broker.counted.state import COUNTED
from broker.features import REGISTRY
from broker.log.state_snapshot import captured, restored
from tests.broker.broker_in_memory import broker_in_memory

with broker_in_memory() as member:
    member.fold(CountUp("T", 5))
    member.fold(CountUp("T", 2))
    state = member.machine.state
    print(member.ask(31099).fields, restored(captured(state), REGISTRY)[COUNTED].counted)
"""


def test_a_feature_is_a_folder_and_nothing_else_names_it(tmp_path: Path) -> None:
    (tmp_path / "counted").mkdir()
    for name, code in THROW_AWAY.items():
        (tmp_path / "counted" / f"{name}.py").write_text(code, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-c", WITH_IT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "{'counted': '7'} 7\n"), ended.stderr


def test_every_folder_with_a_module_of_that_name_is_a_feature() -> None:
    assert len(SERVICES) >= 11


def test_a_kind_of_command_that_is_taken_twice_is_an_error_at_the_start() -> None:
    with pytest.raises(FeatureClash, match="commands of kind 7"):
        Registry([*REGISTRY.commands(), LOCK_QUEUES], REGISTRY.parts, RecordFold)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (StatePart("locks", object), "called 'locks'"),
        (StatePart("mine", object, numbers=("messages",)), "numbers called 'messages'"),
        (StatePart("mine", QueueLocks, rows=(LOCKS.rows[1],)), "rows of 'locks'"),
    ],
)
def test_a_name_of_state_that_is_taken_twice_is_an_error_at_the_start(
    part: StatePart[Any], words: str
) -> None:
    with pytest.raises(FeatureClash, match=words):
        Registry(REGISTRY.commands(), [*REGISTRY.parts, part], RecordFold)


def test_a_request_code_that_is_taken_twice_is_an_error_at_the_start() -> None:
    service = Service(
        handlers={RequestCode.HEART_BEAT: Handler(lambda _origin, command: command, any_user)}
    )
    with pytest.raises(FeatureClash, match="the request code 34"):
        Requests("b", FakeLog(), [service, service], lambda _then: None, lambda: None, lambda: True)


def test_a_leader_serves_only_once_its_consume_queues_are_whole() -> None:
    log, is_whole = FakeLog(), False
    requests = Requests("b", log, [], lambda _then: None, lambda: None, lambda: is_whole)
    log.is_ready_leader = True
    requests.follow_role()
    assert requests.led_term is None
    is_whole = True
    requests.follow_role()
    assert requests.led_term == log.term


def test_each_feature_is_told_of_what_happens_to_the_broker() -> None:
    told: list[str] = []

    def noting(word: str) -> Service:
        return Service(
            begin_term=lambda: told.append(f"{word} begins"),
            end_term=lambda refusal: told.append(f"{word} ends with {refusal.code}"),
            tick=lambda: told.append(f"{word} ticks"),
            look_over=lambda: told.append(f"{word} looks"),
        )

    log = FakeLog()
    requests = Requests(
        "b", log, [noting("a"), noting("b")], lambda _then: None, lambda: None, lambda: True
    )
    requests.tick()  # not while another member leads
    log.is_ready_leader = True
    requests.follow_role()
    requests.tick()
    log.is_ready_leader = False
    requests.follow_role()
    requests.look_over()
    assert told == [
        *("a begins", "b begins", "a ticks", "b ticks"),
        *("a ends with 14", "b ends with 14", "a looks", "b looks"),
    ]
