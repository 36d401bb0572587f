"""The shortest part of an object's history that no order explains."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from jepsen_like.checkers.models.model import Model
from jepsen_like.checkers.overlaps import Overlaps
from jepsen_like.checkers.report import Verdict
from jepsen_like.checkers.search import Search
from jepsen_like.history.operation import Operation

# How long a search goes on without a look at the clock.
STEPS_AT_ONCE = 4_000
# The search for a shorter part is given up after so many configurations: a second or so.
STEPS_MAX = 100_000
# Different states reported of one point, and the steps to find them; more would not help.
STATES_MAX = 8
STATES_STEPS_MAX = 20_000


class FailingPart(NamedTuple):
    """The end that no order passes: that of `late`.

    `order` is one of all operations that ended before, and of others that had been called;
    `shortest` says whether there certainly is such an order. `states` are those that orders lead
    to; all of them if `all_states`. `others` ran when `late` ended.
    """

    late: Operation
    order: list[Operation]
    shortest: bool
    states: list[Hashable]
    all_states: bool
    others: list[Operation]


def failing_part(
    model: Model, overlaps: Overlaps, search: Search, out_of_time: Callable[[], bool]
) -> FailingPart:
    """Find the first end that no order passes, as `search` found no order.

    If `out_of_time` ends this early, the part may not be the shortest.
    """
    first, last = search.furthest, search.doomed_at
    steps_left = STEPS_MAX
    shortest = True
    while first < last:
        middle = (first + last) // 2
        verdict, steps_left = _passes(Search(model, overlaps, middle + 1), steps_left, out_of_time)
        if verdict is None:
            shortest = False
            break
        if verdict is Verdict.VALID:
            first = middle + 1
        else:
            last = middle
    return _told(model, overlaps, last, shortest)


def _passes(
    search: Search, steps_left: int, out_of_time: Callable[[], bool]
) -> tuple[Verdict | None, int]:
    while steps_left > 0 and not out_of_time():
        verdict = search.run(STEPS_AT_ONCE)
        steps_left -= STEPS_AT_ONCE
        if verdict is not None:
            return verdict, steps_left
    return None, 0


def _told(model: Model, overlaps: Overlaps, end: int, shortest: bool) -> FailingPart:
    """Find the longest order before an end, and the states that others lead to."""
    search = Search(model, overlaps, end)
    order: list[Operation] = []
    states: dict[Hashable, None] = {}
    verdict = search.run(STEPS_MAX)
    while verdict is Verdict.VALID and search.arrived is not None and len(states) < STATES_MAX:
        if not states:
            order = search.arrived.order()
        states[_state_after(model, search.arrived.order())] = None
        verdict = search.run(STATES_STEPS_MAX // STATES_MAX)
    placed = {id(operation) for operation in order}
    late, *others = [one.operation for one in overlaps.running[end]]
    left = [one for one in others if id(one) not in placed]
    all_states = verdict is Verdict.INVALID
    return FailingPart(late, order, shortest, list(states), all_states, left)


def _state_after(model: Model, order: list[Operation]) -> Hashable:
    """Return the state after an order. A search may keep another state with the same results."""
    state: Hashable = model.initial
    for operation in order:
        after = model.step(state, operation)
        assert after is not None, "an order of a search is legal"
        state = after
    return state
