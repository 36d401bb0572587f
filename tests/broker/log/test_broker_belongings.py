"""What goes with groups and topics, beside a plain dictionary that forgets at once."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.log import belongings
from broker.log.belongings import Belongings
from tests.examples import examples

names = st.integers(0, 3).map(str)


class Forgetting(RuleBasedStateMachine):
    """Keys of a group, a topic and a queue, in an order of no consequence."""

    def __init__(self) -> None:
        super().__init__()
        self.real: Belongings[tuple[str, int, str], int] = Belongings(group_at=2, topic_at=0)
        self.model: dict[tuple[str, int, str], int] = {}

    @rule(topic=names, queue=st.integers(0, 5), group=names, value=st.integers())
    def put(self, topic: str, queue: int, group: str, value: int) -> None:
        self.real[topic, queue, group] = self.model[topic, queue, group] = value

    @rule(topic=names, queue=st.integers(0, 5), group=names)
    def remove(self, topic: str, queue: int, group: str) -> None:
        key = (topic, queue, group)
        assert self.real.pop(key, None) == self.model.pop(key, None)

    @rule(topic=names)
    def drop_topic(self, topic: str) -> None:
        self.real.drop_topic(topic)
        self.model = {key: value for key, value in self.model.items() if key[0] != topic}

    @rule(group=names)
    def drop_group(self, group: str) -> None:
        self.real.drop_group(group)
        self.model = {key: value for key, value in self.model.items() if key[2] != group}

    @invariant()
    def what_can_be_seen_is_as_in_the_model(self) -> None:
        assert list(self.real.items()) == list(self.model.items())  # in their order, too
        assert self.real == self.model
        for name in map(str, range(4)):
            of_topic = [key for key in self.model if key[0] == name]
            assert sorted(self.real.of_topic(name)) == sorted(of_topic)
            of_group = [key for key in self.model if key[2] == name]
            assert sorted(self.real.of_group(name)) == sorted(of_group)
        assert len(self.real) == len(self.model)
        assert bool(self.real) == bool(self.model)
        for most in (0, len(self.model), len(self.model) + 1):
            assert self.real.has_room(most) == (len(self.model) < most)


TestForgetting = Forgetting.TestCase
TestForgetting.settings = settings(
    max_examples=examples(100), stateful_step_count=40, deadline=None
)


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(belongings, "_SWEPT_KEYS", 2)


def test_a_deletion_sweeps_little_and_changes_after_it_all_the_rest() -> None:
    held: Belongings[tuple[str, str], Any] = Belongings()
    for number in range(100):
        held[f"g{number}", "T"] = number
    held.drop_topic("T")
    assert len(held._all) == 98
    assert list(held) == []
    for number in range(49):
        held["g", f"U{number}"] = number
    assert len(held._all) == len(held) == 49


@pytest.mark.parametrize("drop", ["drop_topic", "drop_group"])
def test_a_deletion_costs_the_same_however_much_belongs_to_what_is_deleted(drop: str) -> None:
    held: Belongings[tuple[str, str], Any] = Belongings()
    for number in range(50_000):
        held[(f"g{number}", "A") if drop == "drop_topic" else ("A", f"t{number}")] = {0: 1}
    began = time.thread_time()
    getattr(held, drop)("A")
    assert time.thread_time() - began < 0.002
