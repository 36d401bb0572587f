"""docs/reference names everything public, and everything public says what it is."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from dledger.errors import DLedgerError
from docs._ext import reference
from docs._ext.reference import (
    OUTCOMES,
    PUBLIC_MODULES,
    documented,
    errors,
    further,
    outcome_of,
    public_errors,
    public_names,
    read_as_rest,
)
from docs._ext.settings_table import comments_of, node_settings, words_of_settings

PROJECT = Path(__file__).parent.parent.parent
PAGES = "\n".join(
    page.read_text(encoding="utf-8") for page in (PROJECT / "docs" / "reference").glob("*.md")
)
OURS = {"dledger", "dledger_mq", "dledger_spark", "jepsen_like", "proxy", "remoting", "tests"}
DOCUMENTED = re.compile(r"^\.\. auto\w+:: ([\w.]+)", re.MULTILINE)
# Names for a union of types or for a kind of function, and constants: they have no docstring.
IN_WORDS = {
    "dledger.Body",
    "dledger.Change",
    "dledger.HEADER_BYTES",
    "dledger.LARGEST_BODY_BYTES",
    "dledger.MAX_BODY_BYTES",
    "dledger_mq.Listener",
    "dledger_mq.QueueSelector",
    "dledger_mq.SendCallback",
    "dledger_mq.SendOutcome",
    "dledger_mq.TransactionCheck",
}


def value_of(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def is_error(path: str) -> bool:
    value = value_of(path)
    return isinstance(value, type) and issubclass(value, DLedgerError)


PUBLIC = [f"{module}.{name}" for module in PUBLIC_MODULES for name in public_names(module)]


def missing(public: list[str], pages: str) -> list[str]:
    """The public names that no page documents."""
    there = documented(pages)
    return [path for path in public if path not in there and f"`{path}`" not in pages]


def test_everything_public_stands_on_a_page_of_the_reference() -> None:
    assert missing([path for path in PUBLIC if not is_error(path)], PAGES + further()) == []
    assert missing([path for path, _ in public_errors()], errors()) == []


def test_a_name_on_a_page_is_public_and_stands_there_once() -> None:
    there = DOCUMENTED.findall(PAGES) + DOCUMENTED.findall(errors())
    assert len(there) == len(set(there))
    assert set(there) <= set(PUBLIC)
    assert not documented(further()) & set(there)


def wrong_words(path: str) -> str | None:
    """What is wrong with the docstring of a public name."""
    value = value_of(path)
    doc = getattr(value, "__doc__", None)
    if not doc:
        return f"{path} has no docstring"
    if doc in [base.__doc__ for base in getattr(value, "__mro__", ())[1:]]:
        return f"{path} has only its parent's docstring"
    if doc.startswith(f"{path.rpartition('.')[2]}("):
        return f"{path} has only Python's docstring"
    return None


def test_each_public_name_says_what_it_is_in_words_of_its_own() -> None:
    wrong = [wrong_words(path) for path in PUBLIC if path not in IN_WORDS]
    assert [words for words in wrong if words] == []


def silent_members(value: object) -> list[str]:
    """Public methods and properties of a class of ours that neither it nor a parent describes."""
    if not isinstance(value, type):
        return []
    members = {
        name: member
        for owner in value.__mro__
        if owner.__module__.partition(".")[0] in OURS
        for name, member in vars(owner).items()
        if not name.startswith("_")
        and (inspect.isroutine(member) or isinstance(member, property | classmethod | staticmethod))
    }
    return [
        f"{value.__name__}.{name}" for name in members if not inspect.getdoc(getattr(value, name))
    ]


def test_each_method_of_a_public_class_is_described() -> None:
    assert [name for path in PUBLIC for name in silent_members(value_of(path))] == []


def test_each_error_stands_under_what_it_says_of_the_append() -> None:
    page = errors()
    places = {title: page.index(f"## {title}") for title, _ in OUTCOMES.values()}
    assert list(places.values()) == sorted(places.values())
    for path, error in public_errors():
        title = OUTCOMES[outcome_of(error)][0]
        at = page.index(f".. autoexception:: {path}\n")
        under = max((place, name) for name, place in places.items() if place < at)[1]
        assert under == title, path


def test_each_setting_of_a_node_is_explained() -> None:
    words = words_of_settings()
    assert all(len(text) > 20 for text in words.values()), words
    assert "| `max_pending_entries` | `int` | `10_000` | " in node_settings()


# Below, the checks are shown to be able to fail.


def test_a_name_that_no_page_has_is_found() -> None:
    pages = ".. autoclass:: dledger.Node\n"
    assert missing(["dledger.Node", "dledger.open_node"], pages) == ["dledger.open_node"]


class Bare:
    pass


class Heir(DLedgerError):
    __doc__ = DLedgerError.__doc__


class Generated(NamedTuple):
    one: int


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("Bare", "no docstring"),
        ("Heir", "only its parent's docstring"),
        ("Generated", "only Python's docstring"),
    ],
)
def test_a_name_without_words_of_its_own_is_found(name: str, wrong: str) -> None:
    path = f"{__name__}.{name}"
    assert wrong_words(path) == f"{path} has {wrong}"


class Mute:
    """A class whose method is not described."""

    def speak(self) -> None:
        pass

    def _whisper(self) -> None:
        pass


def test_a_method_that_nothing_describes_is_found() -> None:
    assert silent_members(Mute) == ["Mute.speak"]


class Settings:
    """Two fields."""

    # How many.
    # At most ten.
    count: int = 3
    name: str  # of the thing

    # A comment on nothing.


def test_comments_of_fields_are_found_above_and_beside_them() -> None:
    assert comments_of(Settings) == {"count": "How many. At most ten.", "name": "of the thing"}


def test_a_public_name_without_a_page_stands_under_further_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "reference").mkdir()
    monkeypatch.setattr(reference, "DOCS", tmp_path)
    assert ".. autoclass:: dledger.Node\n" in reference.further()
    assert ".. autofunction:: dledger.open_node\n" in reference.further()
    assert "NotLeader" not in reference.further()  # an error, and these have a page


def test_a_docstring_is_read_with_its_code() -> None:
    lines = ["Take `one`:", "", "    two = 2", "", "Then `three`.", "", "Args:", "    four: five"]
    read_as_rest(lines)
    assert lines == [
        "Take ``one``:",
        "",
        "::",
        "",
        "    two = 2",
        "",
        "Then ``three``.",
        "",
        "Args:",
        "    four: five",
    ]
