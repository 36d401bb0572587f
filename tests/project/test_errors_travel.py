"""Every error can be handed to another process, copied and compared, and has a short text."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

import dledger
import dledger_mq
from dledger.declared_error import TEXT_CHARACTERS, DeclaredError
from dledger.store.disk import SyncFailed
from jepsen_like.simulation.hosts.process import ProcessEnded
from tests.project.example_values import error_classes, example_error

# OSError by another name: Python pickles and copies them, and compares no such object.
OF_PYTHON = (SyncFailed, ProcessEnded)

# Their cause is an argument of the call, and may not travel. Their fields say what of it does.
CAUSE_IN_CALL = (dledger.DiskFailed, dledger.ResourceRefused, dledger.NodeFailed)

# Longer than any limit of what a field may hold.
HUGE_CHARACTERS = 100_000


def examples(characters: int = 9) -> Iterator[tuple[type[Exception], Exception]]:
    for kind in error_classes():
        yield kind, example_error(kind, characters=characters)


def pickled(error: Exception, protocol: int) -> Exception:
    came = pickle.loads(pickle.dumps(error, protocol))
    assert isinstance(came, Exception)
    return came


def ways() -> Iterator[tuple[str, Callable[[Exception], Exception]]]:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        yield f"pickle {protocol}", partial(pickled, protocol=protocol)
    yield "copy", copy.copy
    yield "deepcopy", copy.deepcopy


def test_every_error_travels_unchanged() -> None:
    kinds = error_classes()
    assert len(kinds) > 200
    problems = []
    for kind, error in examples():
        error.add_note("a note")
        for way, carried in ways():
            try:
                came = carried(error)
            except Exception as refused:
                problems.append(f"{kind.__module__}.{kind.__qualname__}: {way}: {refused!r}")
                continue
            same = (
                type(came) is kind
                and (came == error or kind in OF_PYTHON)
                and (str(came), repr(came)) == (str(error), repr(error))
                and came.args == error.args
                and vars(came) == vars(error)
            )
            if not same:
                problems.append(f"{kind.__module__}.{kind.__qualname__}: {way}: {came!r}")
    assert not problems, "\n".join(problems)


def test_a_class_that_is_called_with_the_arguments_of_an_error_makes_an_equal_one() -> None:
    for kind, error in examples():
        if kind in (*OF_PYTHON, *CAUSE_IN_CALL):
            continue
        assert kind(*error.args) == error, f"{kind}: {error.args}"


def test_every_error_is_declared_by_its_fields() -> None:
    others = [kind for kind in error_classes() if not issubclass(kind, DeclaredError)]
    assert set(others) == set(OF_PYTHON)


def test_errors_of_other_fields_or_of_another_class_differ() -> None:
    problems = []
    for kind, error in examples():
        if kind in OF_PYTHON or not vars(error):
            continue
        other = copy.copy(error)
        name = next(iter(vars(other)))
        setattr(other, name, "another value")
        if other == error:
            problems.append(f"{kind}: {name}")
    assert not problems, problems
    assert dledger.ReadUnavailable("a") != dledger.SnapshotUnavailable("a")
    assert dledger.NotLeader("n1", 3) != "not the leader"
    assert len({dledger.NotLeader("n1", 3), dledger.NotLeader("n1", 3)}) == 1


def test_every_text_is_short_however_long_the_fields_are() -> None:
    for kind, error in examples(HUGE_CHARACTERS):
        if kind in OF_PYTHON:
            continue
        assert str(error), kind
        assert len(str(error)) <= TEXT_CHARACTERS, kind
        assert len(repr(error)) <= 2 * TEXT_CHARACTERS, kind


def test_a_long_text_keeps_its_beginning_and_its_advice() -> None:
    text = str(dledger.ReadUnavailable("x" * HUGE_CHARACTERS))
    assert text.startswith("the read cannot be served: xxx")
    assert text.endswith("xxx; try again")


def test_an_error_takes_exactly_its_fields() -> None:
    assert dledger.NotLeader(term=3, leader=None) == dledger.NotLeader(None, 3)
    assert dledger.DataFolderLocked("/data").here is False
    assert dledger.NotLeader(term=3, leader=None).args == (None, 3)
    for arguments in ((), ("n1",), ("n1", 3, 4)):
        with pytest.raises(TypeError):
            dledger.NotLeader(*arguments)
    match dledger.NotLeader("n1", 3):
        case dledger.NotLeader(leader, term):
            assert (leader, term) == ("n1", 3)
        case _:
            pytest.fail("fields do not match by place")


def test_groups_of_errors_travel_and_causes_stay() -> None:
    error = dledger.NotLeader("n1", 3)
    error.__cause__ = OSError("a cause")
    group = ExceptionGroup("both", [error, dledger_mq.WindowFull("topic", 5)])
    came = pickle.loads(pickle.dumps(group))
    assert came.exceptions == group.exceptions
    assert came.exceptions[0].__cause__ is None


def refuse(number: int) -> int:
    if number == 1:
        raise dledger_mq.Rejected("topic", "no broker leads", 3, 14)
    return number


def test_an_error_in_another_process_reaches_its_caller() -> None:
    wanted = dledger_mq.Rejected("topic", "no broker leads", 3, 14)
    processes = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(1, mp_context=processes) as executor:
        futures = [executor.submit(refuse, number) for number in range(3)]
        assert futures[1].exception(timeout=60) == wanted
        assert [futures[0].result(60), futures[2].result(60)] == [0, 2]
    with processes.Pool(1) as pool, pytest.raises(dledger_mq.Rejected) as raised:
        pool.apply_async(refuse, (1,)).get(timeout=60)
    assert raised.value == wanted
    assert raised.value.attempts == 3


def test_an_error_for_one_more_caller_keeps_its_cause() -> None:
    error = dledger.NodeClosing()
    error.__cause__ = OSError("no disk")
    assert error.again().__cause__ is error.__cause__
