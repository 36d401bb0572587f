"""When groups began where they were moved: in order, forgotten in time, at a small cost."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bench.costs.loop_holds import Instructions
from broker.offsets.begun_resets import RESET_MS, BegunResets
from tests.examples import examples

names = st.integers(0, 3).map(str)


class Begun(RuleBasedStateMachine):
    """Beside a plain dictionary that looks at the four oldest with each one that comes."""

    def __init__(self) -> None:
        super().__init__()
        self.real = BegunResets()
        self.model: dict[tuple[str, str, int], int] = {}

    # Leaders' clocks differ.
    @rule(group=names, topic=names, queue=st.integers(0, 5), now=st.integers(0, 3))
    def begin(self, group: str, topic: str, queue: int, now: int) -> None:
        key, now_ms = (group, topic, queue), now * RESET_MS
        self.real.begin(key, now_ms)
        for old in list(self.model)[:4]:
            if now_ms - self.model[old] >= RESET_MS:
                del self.model[old]
        self.model.pop(key, None)
        self.model[key] = now_ms

    @rule(group=names, topic=names, queue=st.integers(0, 5))
    def move_again(self, group: str, topic: str, queue: int) -> None:
        self.real.forget((group, topic, queue))
        self.model.pop((group, topic, queue), None)

    @rule(topic=names)
    def delete_topic(self, topic: str) -> None:
        self.real.drop_topic(topic)
        self.model = {key: at for key, at in self.model.items() if key[1] != topic}

    @rule(group=names)
    def delete_group(self, group: str) -> None:
        self.real.drop_group(group)
        self.model = {key: at for key, at in self.model.items() if key[0] != group}

    @rule()
    def go_on_from_a_snapshot(self) -> None:
        rows = list(self.real.captured())
        self.real = BegunResets()
        for key, began_ms in rows:
            self.real.put(key, began_ms)

    @invariant()
    def it_is_as_in_the_model(self) -> None:
        assert self.real.listed() == list(self.model.items())
        assert all(self.real.began_ms(key) == at for key, at in self.model.items())


TestBegun = Begun.TestCase
TestBegun.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


def test_what_went_with_a_topic_is_passed_by_once() -> None:
    def cost(of_deleted: int) -> int:
        begun = BegunResets()
        for number in range(of_deleted):
            begun.put((f"g{number}", "deleted", 0), 0)
        begun.drop_topic("deleted")
        begun.begin(("g", "T", 0), 1)
        counter = Instructions()
        with counter.counting():
            begun.begin(("g", "T", 1), 1)
        return counter.count

    assert cost(4000) - cost(400) < 100
