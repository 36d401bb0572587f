from dledger_mq.consuming.agenda import Agenda
from dledger_mq.consuming.back_off import FAILURES_BEFORE_PAUSE, LONGEST_PAUSE_S, BackOff


def closed_at(now: float) -> BackOff:
    """A back-off whose first pause begins at `now`."""
    back_off = BackOff()
    for number in range(FAILURES_BEFORE_PAUSE):
        back_off.failed(now - 1, now, f"m{number}")
    return back_off


def test_single_failures_cost_no_pause() -> None:
    back_off = BackOff()
    for number in range(100):
        assert back_off.failed(number, number, f"m{number}") == 0.0
        back_off.succeeded(number)
        assert back_off.allows(number, running=19)


def test_pauses_double_up_to_a_limit_with_one_call_after_each() -> None:
    back_off = closed_at(10.0)
    now, pauses = 10.0, [0.5]
    for _ in range(8):
        assert not back_off.allows(now + pauses[-1] - 0.1, running=0)
        now += pauses[-1]
        assert back_off.allows(now, running=0)
        assert not back_off.allows(now, running=1)
        pauses.append(back_off.failed(now, now + 0.01, "m"))
        now += 0.01
    assert pauses == [0.5, 1, 2, 4, 8, 16, LONGEST_PAUSE_S] + [LONGEST_PAUSE_S] * 2


def test_a_success_ends_the_pauses_and_the_next_ones_begin_small() -> None:
    back_off = closed_at(10.0)
    back_off.failed(10.5, 10.6, "m")
    back_off.succeeded(12.0)
    assert not back_off.is_closed
    assert back_off.allows(12.0, running=19)
    for number in range(FAILURES_BEFORE_PAUSE - 1):
        assert back_off.failed(12.0, 12.1, f"m{number}") == 0.0
    assert back_off.failed(12.0, 12.1, "m") == 0.5


def test_one_message_that_fails_again_and_again_costs_no_pause() -> None:
    back_off = BackOff()
    for number in range(100):
        assert back_off.failed(number, number, "bad") == 0.0
        assert back_off.allows(number, running=19)


def test_a_call_that_began_before_the_pause_changes_nothing() -> None:
    back_off = closed_at(10.0)
    assert back_off.failed(9.9, 10.1, "m") == 0.0
    back_off.succeeded(9.9)
    assert back_off.is_closed
    assert back_off.allows(10.5, running=0)


def test_an_agenda_gives_what_is_due_in_the_order_of_the_times() -> None:
    agenda: Agenda[str] = Agenda()
    assert agenda.next_time == float("inf")
    for time, item in ((3.0, "c"), (1.0, "a"), (2.0, "b"), (1.0, "a again")):
        agenda.add(time, item)
    assert agenda.next_time == 1.0
    assert agenda.take_due(0.9) == []
    assert agenda.take_due(2.0) == ["a", "a again", "b"]
    assert agenda.take_due(9.0) == ["c"]
    assert agenda.next_time == float("inf")
