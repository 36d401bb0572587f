from __future__ import annotations

import importlib
import inspect
import pickle
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

import dledger
import dledger_mq
import jepsen_like
from dledger.blocking import BlockingNode
from dledger.declared_error import DeclaredError
from dledger.forms import waits
from dledger.renamed import new_names_of, renamed_arguments, renamed_fields

MODULES = (
    "dledger",
    "dledger.machines",
    "dledger.blocking",
    "dledger.for_asyncio",
    "dledger_mq",
    "dledger_mq.blocking",
    "dledger_mq.for_asyncio",
    "dledger_mq.prometheus_metrics",
    "dledger_mq.testing",
    "jepsen_like",
)
LINE = re.compile(r"^\| (.*?) \| `(\w+)` \| `(\w+)` \|$", re.MULTILINE)
PAGE = Path(__file__).parents[2] / "docs" / "library.md"


@renamed_arguments(wait_seconds="wait_s", old_size="size_bytes")
def called(name: str, *, wait_s: float = 1.0, size_bytes: int = 0) -> tuple[str, float, int]:
    return name, wait_s, size_bytes


@renamed_arguments(wait_seconds="wait_s")
async def awaited(wait_s: float) -> float:
    return wait_s


@renamed_fields(wait_seconds="wait_s")
@dataclass(frozen=True, slots=True)
class Options:
    wait_s: float = 1.0


@renamed_fields(size="size_bytes")
class Row(NamedTuple):
    name: str
    size_bytes: int


@renamed_fields(seconds="waited_s")
class TooLate(DeclaredError):
    waited_s: float
    _template = "waited for {waited_s:g} s"


def line_of(call: Callable[[], object]) -> int:
    return call.__code__.co_firstlineno


def warned(call: Callable[[], Any]) -> tuple[Any, str]:
    """What a call of one line gives, and its one warning, which is of that line."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = call()
    (one,) = told
    assert one.category is DeprecationWarning
    assert (one.filename, one.lineno) == (__file__, line_of(call))
    return result, str(one.message)


def test_a_new_name_is_taken_without_a_warning() -> None:
    assert called("a", wait_s=2.0) == ("a", 2.0, 0)
    assert Options(wait_s=2.0).wait_s == 2.0
    assert Row("a", size_bytes=3) == ("a", 3)


def test_an_old_argument_is_taken_and_told_with_the_line_of_the_caller() -> None:
    result, text = warned(lambda: called("a", wait_seconds=2.0))  # type: ignore[call-arg]
    assert result == ("a", 2.0, 0)
    assert "'wait_seconds' of called()" in text
    assert "'wait_s'" in text


def test_several_old_arguments_are_told_each() -> None:
    with pytest.warns(DeprecationWarning, match="called") as told:
        assert called("a", wait_seconds=2.0, old_size=3) == ("a", 2.0, 3)  # type: ignore[call-arg]
    assert len(told) == 2


def test_an_old_argument_beside_the_new_one_is_refused() -> None:
    with pytest.raises(TypeError, match=r"called\(\) got both 'wait_s' and 'wait_seconds'"):
        called("a", wait_s=1.0, wait_seconds=2.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Options\(\) got both 'wait_s' and 'wait_seconds'"):
        Options(wait_s=1.0, wait_seconds=2.0)  # type: ignore[call-arg]


def test_another_unknown_argument_is_refused_as_ever() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'wait_minutes'"):
        called("a", wait_minutes=2.0)  # type: ignore[call-arg]


async def test_a_call_that_is_awaited_tells_where_it_is_made() -> None:
    awaiting, _ = warned(lambda: awaited(wait_seconds=2.0))  # type: ignore[call-arg]
    assert await awaiting == 2.0


@pytest.mark.skipif(sys.version_info < (3, 12), reason="it cannot be told before Python 3.12")
def test_a_coroutine_function_stays_one() -> None:
    assert inspect.iscoroutinefunction(awaited)


def test_a_class_takes_and_has_its_old_names() -> None:
    options, _ = warned(lambda: Options(wait_seconds=2.0))  # type: ignore[call-arg]
    row, _ = warned(lambda: Row("a", size=3))  # type: ignore[call-arg]
    late, _ = warned(lambda: TooLate(seconds=2.0))  # type: ignore[call-arg]
    assert warned(lambda: options.wait_seconds) == (
        2.0,
        "the attribute 'wait_seconds' of Options is called 'wait_s' now; "
        "the old name works in this version for the last time",
    )
    assert warned(lambda: row.size)[0] == 3
    assert warned(lambda: late.seconds)[0] == 2.0


def test_an_error_with_an_old_name_travels_as_ever() -> None:
    late = TooLate(waited_s=2.0)
    assert late.args == (2.0,)
    again = pickle.loads(pickle.dumps(late))
    assert again == late
    assert str(again) == "waited for 2 s"


class Inner:
    @renamed_arguments(wait_seconds="wait_s")
    async def ask(self, wait_s: float) -> float:
        return wait_s


class Form:
    def __init__(self) -> None:
        self._inner = Inner()
        self._loop = SimpleNamespace(wait=lambda call: call)

    ask = waits(Inner.ask)


def test_a_derived_form_takes_old_names_and_tells_the_line_of_its_caller() -> None:
    form = Form()
    call, text = warned(lambda: form.ask(wait_seconds=2.0))  # type: ignore[call-arg]
    assert call.keywords == {"wait_s": 2.0}
    assert "'wait_seconds' of Inner.ask()" in text


# --- the public names that have new ones ------------------------------------------------------


class Renamed(NamedTuple):
    owner: str
    called: Any  # a class, or a function
    old: str
    new: str


def renamed_names() -> Iterator[Renamed]:
    """All of the public modules, the derived forms included."""
    seen = set[object]()
    for module in map(importlib.import_module, MODULES):
        names = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
        ]
        for name in names:
            found = getattr(module, name)
            if found in seen or not inspect.isclass(found):
                assert not new_names_of(found)
                continue
            seen.add(found)
            maker = found.__new__ if issubclass(found, tuple) else found.__init__
            for old, new in new_names_of(maker).items():
                yield Renamed(name, found, old, new)
            for attribute, member in vars(found).items():
                if not attribute.startswith("__"):
                    for old, new in new_names_of(member).items():
                        yield Renamed(f"{name}.{attribute}", member, old, new)


RENAMED = tuple(renamed_names())

# What the fields need that have no default.
VALUES = {"str": "x", "int": 1, "float": 1.0, "bool": True}


def on_the_page() -> set[tuple[str, str, str]]:
    text = PAGE.read_text(encoding="utf-8").partition("## Old names")[2]
    return {
        (owner, old, new)
        for owners, old, new in LINE.findall(text)
        for owner in re.findall(r"`([\w.]+)`", owners)
    }


def test_the_page_has_all_old_names() -> None:
    trios = {
        (one.owner.replace("Blocking", "").replace("Asyncio", ""), one.old, one.new)
        for one in RENAMED
    }
    assert trios == on_the_page()


def test_every_form_of_a_call_takes_the_old_names_of_all() -> None:
    there, compared = {(one.owner, one.old) for one in RENAMED}, 0
    for module in map(importlib.import_module, MODULES):
        for name, form in vars(module).items():
            own = re.sub("^(Blocking|Asyncio)", "", name)
            if own == name or not inspect.isclass(form):
                continue
            for one in RENAMED:
                owner, _, call = one.owner.partition(".")
                if owner == own and call and call in vars(form):
                    assert (f"{name}.{call}", one.old) in there
                    compared += 1
    assert compared > 15


def test_each_public_call_takes_an_old_name_with_a_warning_and_not_beside_the_new_one() -> None:
    for one in RENAMED:
        parameters = inspect.signature(one.called).parameters
        assert one.new in parameters, one
        assert one.old not in parameters, one
        with pytest.raises(TypeError, match=f"got both '{one.new}' and '{one.old}'"):
            one.called(**{one.old: 1, one.new: 1})
        if not inspect.isclass(one.called):
            # The new name is what the call takes: an unknown one would be told before what lacks.
            with pytest.warns(DeprecationWarning, match=one.new), pytest.raises(TypeError) as told:
                one.called(**{one.old: 1})
            assert "missing" in str(told.value), one


def test_each_public_field_is_set_and_read_by_its_old_name_with_a_warning() -> None:
    fields = [one for one in RENAMED if inspect.isclass(one.called)]
    assert len(fields) > 15
    for one in fields:
        if one.called in (dledger_mq.Producer, jepsen_like.World):
            continue  # these do not show how they were made
        given = {
            name: VALUES.get(str(getattr(each.annotation, "__name__", each.annotation)))
            for name, each in inspect.signature(one.called).parameters.items()
            if each.default is each.empty and name != one.new
        }
        value = (0.25, 0.5) if one.new == "retry_s" else 15
        with pytest.warns(DeprecationWarning, match=f"{one.old!r} of .* {one.new!r}"):
            made = one.called(**given, **{one.old: value})
        assert getattr(made, one.new) == value
        with pytest.warns(DeprecationWarning, match=f"{one.old!r} of .* {one.new!r}") as told:
            assert getattr(made, one.old) == value
        assert told[0].filename == __file__


def test_a_status_is_told_by_the_names_that_other_members_and_readers_know() -> None:
    status = dledger.Status(
        **{  # type: ignore[arg-type]
            name: VALUES.get(str(each.annotation))
            for name, each in inspect.signature(dledger.Status).parameters.items()
            if each.default is each.empty
        },
        loop_held_s=0.5,
        sync_s=0.25,
    )
    told = status.as_dict()
    assert (told["loop_held_seconds"], told["sync_seconds"]) == (0.5, 0.25)
    assert not {"loop_held_s", "sync_s"} & told.keys()


def test_a_form_without_a_renamed_argument_is_not_wrapped() -> None:
    assert not new_names_of(BlockingNode.wait_applied)


async def test_a_producer_takes_its_time_limit_by_the_old_name() -> None:
    with pytest.warns(DeprecationWarning, match="Producer") as told:
        producer = dledger_mq.Producer(
            "g",
            nameservers="127.0.0.1:1",
            timeout_seconds=7.0,  # type: ignore[call-arg]
        )
    assert told[0].filename == __file__
    assert producer._timeout_s == 7.0


async def exactly_typed(producer: dledger_mq.Producer, message: dledger_mq.Message) -> None:
    """For the type checker, which sees the new names alone, with their types."""
    await producer.send(message, timeout_s=1.0)
    await producer.send(message, timeout_s="1")  # type: ignore[arg-type]
    await producer.send(message, timeout_seconds=1.0)  # type: ignore[call-arg]
    dledger_mq.Batching(linger_ms="1")  # type: ignore[arg-type]
