"""Deadlines of what waits: who is told when, and how many are kept."""

from broker.serving.deadlines import Deadlines


def test_what_still_waits_is_told_in_the_order_of_its_deadlines_a_few_at_a_time() -> None:
    answered = {"b", "d"}
    deadlines = Deadlines[str](lambda one: one not in answered, 2)
    for count, (deadline, one) in enumerate(((3.0, "c"), (1.0, "a"), (2.0, "b"), (2.0, "e")), 1):
        deadlines.add(deadline, one, count)
    deadlines.add(9.0, "f", 5)
    assert deadlines.take(0.9) == []
    assert deadlines.take(3.0) == ["a", "e"]
    assert deadlines.take(3.0) == ["c"]
    assert deadlines.take(8.9) == []
    deadlines.clear()
    assert deadlines.take(10.0) == []


def test_deadlines_of_what_was_answered_do_not_pile_up() -> None:
    waiting = {"one"}
    deadlines = Deadlines[str](waiting.__contains__, 16)
    deadlines.add(1.0, "one", 1)
    for number in range(5000):
        deadlines.add(1e9, f"answered {number}", 2)
        assert len(deadlines) < 2000
    assert deadlines.take(1e9) == ["one"]
