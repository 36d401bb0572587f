"""Features register themselves, and two that claim the same thing are found at the start."""

from dataclasses import replace
from typing import Any

import pytest

from broker.errors import FeatureClash
from broker.feature import Feature
from broker.features import FEATURES, registry_of
from broker.locks.commands import LOCK_QUEUES
from broker.locks.state import LOCKS, QueueLocks
from broker.log.state import StatePart
from broker.messages.fold import RecordFold
from broker.serving.requests import Requests
from broker.serving.service import Handler, Service
from remoting.wire.codes import RequestCode
from tests.broker.test_broker_waiting import FakeLog


def test_every_folder_with_a_module_of_that_name_is_a_feature() -> None:
    assert len(FEATURES) >= 11
    assert all(isinstance(feature, Feature) for feature in FEATURES)


def test_a_kind_of_command_that_is_taken_twice_is_an_error_at_the_start() -> None:
    again = Feature(commands=(LOCK_QUEUES,))
    with pytest.raises(FeatureClash, match="commands of kind 7"):
        registry_of([*FEATURES, again])


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
        registry_of([*FEATURES, Feature(parts=(part,))])


def test_one_feature_folds_message_records() -> None:
    with pytest.raises(FeatureClash, match="2 features fold message records"):
        registry_of([*FEATURES, Feature(records=RecordFold)])
    with pytest.raises(FeatureClash, match="0 features"):
        registry_of([replace(feature, records=None) for feature in FEATURES])


def test_a_request_code_that_is_taken_twice_is_an_error_at_the_start() -> None:
    service = Service(handlers={RequestCode.HEART_BEAT: Handler(lambda _origin, command: command)})
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
