"""The requests that wait for replies, against a plain dictionary."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from remoting.net.request_table import RequestTable, WaitingRequest

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20)),
        st.tuples(st.just("take"), st.integers(0, 30)),
        st.tuples(st.just("look"), st.integers(0, 8)),
    ),
    max_size=60,
)


@given(STEPS)
def test_each_request_expires_at_its_deadline_whatever_was_answered_meanwhile(
    steps: list[tuple[str, int]],
) -> None:
    table, model, now = RequestTable(), dict[int, float](), 0.0
    for what, number in steps:
        if what == "add":
            opaque, deadline = table.next_opaque(), now + number
            table.add(opaque, WaitingRequest(10, lambda _outcome: None, deadline, number, 0))
            model[opaque] = deadline
        elif what == "take":
            assert (table.take(number) is not None) == (model.pop(number, None) is not None)
        else:
            now += number
            due = sorted(deadline for deadline in model.values() if deadline <= now)
            assert sorted(one.deadline for one in table.expired(now)) == due
            model = {opaque: deadline for opaque, deadline in model.items() if deadline > now}
        assert len(table) == len(model)
        assert table.next_deadline <= min(model.values(), default=math.inf)
        assert bool(model) or table.next_deadline == math.inf


def test_a_look_before_the_first_deadline_visits_no_request() -> None:
    table = RequestTable()
    for number in range(3):
        deadline = 20.0 + number
        table.add(table.next_opaque(), WaitingRequest(10, lambda _outcome: None, deadline, 20.0, 0))

    class Unvisited(dict[int, WaitingRequest]):
        def items(self) -> object:  # type: ignore[override]
            raise AssertionError("a look goes through all requests that wait")

        values = items  # type: ignore[assignment]

    table._waiting = Unvisited(table._waiting)
    assert table.next_deadline == 20.0
    assert table.expired(19.9) == []
