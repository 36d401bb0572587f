import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.core.ledger_view import LedgerView
from dledger.entry import NO_TERM
from dledger.errors import InvariantBroken
from tests.dledger.core.core_group import terms_of, view_of

# Steps of a log's life: (rise of the term, entries) to extend, or a share of the log to keep.
EXTEND = st.tuples(st.integers(0, 3), st.integers(1, 6))
CUT = st.floats(0, 1)
STEPS = st.lists(st.one_of(EXTEND, CUT), max_size=20)


def lived(steps: list[tuple[int, int] | float]) -> tuple[LedgerView, list[int]]:
    """A view and a plain list of terms after the same steps."""
    view, model = LedgerView(), list[int]()
    for step in steps:
        if isinstance(step, tuple):
            rise, count = step
            term = (model[-1] if model else 0) + rise
            assert view.extend(term, count) == len(model)
            model += [term] * count
        else:
            keep = int(step * len(model))
            view.truncate_after(keep - 1)
            del model[keep:]
    return view, model


@given(STEPS)
def test_a_view_says_of_every_index_what_a_plain_list_says(
    steps: list[tuple[int, int] | float],
) -> None:
    view, model = lived(steps)
    assert view.last_index == len(model) - 1
    assert view.last_term == (model[-1] if model else NO_TERM)
    assert terms_of(view) == model
    assert view.term_at(-1) == NO_TERM
    assert view.term_at(len(model)) == NO_TERM
    for index, term in enumerate(model):
        end = view.run_end(index)
        assert index <= end
        assert set(model[index : end + 1]) == {term}
        assert end == len(model) - 1 or model[end + 1] != term


@given(STEPS, st.integers(-1, 60), st.integers(-1, 60))
def test_the_last_index_of_at_most_a_term_is_what_a_search_finds(
    steps: list[tuple[int, int] | float], term: int, limit: int
) -> None:
    view, model = lived(steps)
    fitting = [i for i, found in enumerate(model) if found <= term and i <= limit]
    assert view.last_index_with_term_at_most(term, limit) == max(fitting, default=-1)


@given(STEPS, st.integers(0, 60), st.integers(0, 60))
def test_runs_cover_the_entries_asked_for(
    steps: list[tuple[int, int] | float], first: int, count: int
) -> None:
    view, model = lived(steps)
    last = min(first + count, len(model)) - 1
    covered: list[int] = []
    runs = view.runs(first, last)
    for number, run in enumerate(runs):
        end = runs[number + 1].first_index if number + 1 < len(runs) else last + 1
        assert run.first_index == first + len(covered)
        covered += [run.term] * (end - run.first_index)
    assert covered == model[first : last + 1]


@given(STEPS)
def test_a_view_made_of_its_own_runs_is_equal(steps: list[tuple[int, int] | float]) -> None:
    view, model = lived(steps)
    again = LedgerView(view.runs(0, view.last_index), last_index=view.last_index)
    assert terms_of(again) == model


def test_terms_never_decrease() -> None:
    with pytest.raises(InvariantBroken, match="entry of term 1 after one of term 2"):
        view_of([1, 2]).extend(1, 1)


def test_a_log_whose_head_was_dropped_remembers_the_term_before_it() -> None:
    view = LedgerView(before_begin=9, before_begin_term=3, last_index=9)
    assert (view.last_term, view.term_at(9), view.term_at(8)) == (3, 3, NO_TERM)
    assert view.extend(4, 2) == 10
    assert view.last_index_with_term_at_most(3, 11) == 9
    with pytest.raises(InvariantBroken, match="before the log's begin"):
        view.truncate_after(8)


@given(STEPS, st.floats(0, 1), STEPS)
def test_a_view_that_lost_its_beginning_says_the_same_of_the_rest(
    steps: list[tuple[int, int] | float], share: float, more: list[tuple[int, int] | float]
) -> None:
    view, model = lived(steps)
    if not model:
        return
    first = int(share * (len(model) - 1))
    view.discard_before(first)
    for step in more:
        if isinstance(step, tuple):
            rise, count = step
            term = model[-1] + rise
            assert view.extend(term, count) == len(model)
            model += [term] * count
        else:
            keep = max(first + 1, int(step * len(model)))  # the first one kept is committed
            view.truncate_after(keep - 1)
            del model[keep:]
    assert (view.before_begin, view.last_index) == (first - 1, len(model) - 1)
    assert view.last_term == model[-1]
    for index in range(first, len(model)):
        assert view.term_at(index) == model[index]
        assert view.runs(index, index)[0] == (model[index], index)
    assert view.term_at(first - 1) == (model[first - 1] if first else NO_TERM)
    if first > 1:
        assert view.term_at(first - 2) == NO_TERM
    assert view.last_index_with_term_at_most(-1, len(model)) == first - 1


def test_a_log_is_never_emptied_from_its_front() -> None:
    view = view_of([1, 1, 2])
    with pytest.raises(InvariantBroken):
        view.discard_before(3)
    view.discard_before(2)
    assert (view.term_at(2), view.term_at(1), view.term_at(0)) == (2, 1, NO_TERM)
