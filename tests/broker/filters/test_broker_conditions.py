"""Conditions by themselves: what they mean, and which are refused."""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import RequestRefused
from broker.filters.condition import MAX_CONDITION_CHARACTERS, MAX_DEPTH, MAX_TERMS, condition
from remoting.message.properties import decode_some, encode_properties
from remoting.wire.codes import ResponseCode


def met(text: str, **properties: str) -> bool:
    found = condition(text)
    run = encode_properties({**properties, "OTHER": "1"})
    return found.is_met(decode_some(run, found.names))


@pytest.mark.feature("F36")
@pytest.mark.parametrize(
    ("text", "properties", "expected"),
    [
        ("a = 'x'", {"a": "x"}, True),
        ("a = 'x'", {"a": "X"}, False),
        ("a <> 'x'", {"a": "y"}, True),
        ("a != 'x'", {"a": "x"}, False),
        ("a = 5", {"a": "5"}, True),
        ("a = 5", {"a": "5.0"}, True),
        ("a = 5.5", {"a": "5.50"}, True),
        ("a = 5L", {"a": "5"}, True),
        ("a = '5'", {"a": "5.0"}, False),
        ("a > 5", {"a": "5.01"}, True),
        ("a > 5", {"a": "five"}, False),
        ("a >= 5", {"a": "5"}, True),
        ("a < -3", {"a": "-4"}, True),
        ("a <= 1e3", {"a": "1000"}, True),
        ("a > .5", {"a": "0.6"}, True),
        ("a > b", {"a": "10", "b": "9"}, True),
        ("-a = 3", {"a": "-3"}, True),
        ("+a = 3", {"a": "3"}, True),
        ("a = TRUE", {"a": "True"}, True),
        ("a", {"a": "true"}, True),
        ("a", {"a": "yes"}, False),
        ("NOT a", {"a": "yes"}, True),
        ("a BETWEEN 1 AND 3", {"a": "3"}, True),
        ("a not between 1 and 3", {"a": "4"}, True),
        ("a BETWEEN 1 AND 3 AND b = 1", {"a": "2", "b": "1"}, True),
        ("a IN ('x', 'it''s')", {"a": "it's"}, True),
        ("a NOT IN ('x')", {"a": "y"}, True),
        ("a IS NULL", {}, True),
        ("a IS NULL", {"a": ""}, False),
        ("a IS NOT NULL", {"a": ""}, True),
        ("a CONTAINS 'b'", {"a": "abc"}, True),
        ("a StartsWith 'b'", {"a": "abc"}, False),
        ("a ENDSWITH 'bc'", {"a": "abc"}, True),
        ("a NOT CONTAINS 'x'", {"a": "abc"}, True),
        ("(a = 1 OR b = 1) AND NOT c = 1", {"b": "1", "c": "2"}, True),
        ("a=1--the rest\n AND/* not */b=1", {"a": "1", "b": "1"}, True),
        ("android = 1 and nota = 2 AND inn = 3", {"android": "1", "nota": "2", "inn": "3"}, True),
        ("$x_1 = 'ü'", {"$x_1": "ü"}, True),
        ("TAGS = 'A'", {"TAGS": "A"}, True),
        ("TRUE", {}, True),
        ("1 = 1", {}, True),
        # Three values: what is absent is neither true nor false.
        ("a = 1", {}, False),
        ("a <> 1", {}, False),
        ("NOT a = 1", {}, False),
        ("a = 1 OR TRUE", {}, True),
        ("a = 1 AND FALSE", {}, False),
        ("NOT (a = 1 AND FALSE)", {}, True),
        ("NOT (a = 1 OR FALSE)", {}, False),
        ("a NOT IN ('x')", {}, False),
        ("a NOT BETWEEN 1 AND 2", {}, False),
        ("a NOT CONTAINS 'x'", {}, False),
        ("NOT a > 5", {"a": "five"}, False),
        ("a > 5", {"a": "9" * 400}, False),
        ("a > 5", {"a": "inf"}, False),
        ("a > 5", {"a": "nan"}, False),
        ("a = 10", {"a": "1_0"}, False),
        ("a = 5", {"a": "\u0665"}, False),
    ],
)
def test_a_condition_means_what_sql_says(
    text: str, properties: dict[str, str], expected: bool
) -> None:
    assert met(text, **properties) is expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a >",
        "= 1",
        "a = ",
        "a = 1 AND",
        "(a = 1",
        "a = 1)",
        "a > 'x'",
        "'x' < a",
        "a > TRUE",
        "a IN (1, 2)",
        "a IN ()",
        "1 IN ('x')",
        "'x' CONTAINS 'y'",
        "a CONTAINS 1",
        "a BETWEEN 3 AND 1",
        "a BETWEEN 'x' AND 'y'",
        "a = NULL",
        "a IS 5",
        "a = 'x",
        "a = 1 b = 2",
        "5",
        "'x'",
        "a = 1 AND 5",
        "a = 1; DROP TABLE x",
        "a # 1",
        "a = 1e999",
        "a = 5x",
        "\ud800",
        "a = '\x00",
        "NOT",
        "a LIKE 'x%'",
        "a = 1 /* open",
        "(a = 1 OR (a = 1 AND " * (MAX_DEPTH // 2 + 1) + "a = 1" + "))" * (MAX_DEPTH // 2 + 1),
        "NOT " * (MAX_DEPTH + 2) + "a = 1",
        "-" * (MAX_DEPTH + 2) + "a = 1",
        " OR ".join(["a = 1"] * MAX_TERMS),
        "a IN (" + ",".join(["'x'"] * (MAX_TERMS + 1)) + ")",
        "a = '" + "x" * MAX_CONDITION_CHARACTERS + "'",
    ],
)
def test_what_is_no_condition_is_refused_at_once_with_a_reason(text: str) -> None:
    if text == "a":
        return  # a property alone is one
    began = time.process_time()
    with pytest.raises(RequestRefused) as refused:
        condition(text)
    assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert refused.value.remark.startswith("the SQL92 condition is wrong: ")
    assert time.process_time() - began < 1


@given(st.text(max_size=60))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    with suppress(RequestRefused):
        condition(text).is_met({"a": "1"})


words = st.lists(
    st.sampled_from(
        [
            *("a", "b", "1", "2.5", "'x'", "(", ")", "AND", "OR", "NOT", "=", "<>", "<", ">="),
            *("BETWEEN", "IN", "IS", "NULL", ",", "TRUE", "CONTAINS", "-", "+"),
        ]
    ),
    max_size=14,
)


@given(words, st.dictionaries(st.sampled_from("ab"), st.sampled_from(["1", "x", "true", ""])))
def test_any_words_are_a_condition_or_refused(found: list[str], properties: dict[str, str]) -> None:
    with suppress(RequestRefused):
        condition(" ".join(found)).is_met(properties)


# --- beside another evaluator ---------------------------------------------------------------------

# SQLite means the same where a column has one type: n and m are numbers, t and u are texts.
NUMBERS = st.sampled_from(["0", "1", "-1", "2.5", "10"])
numeric = st.sampled_from(["n", "m", "-n", "1", "2.5", "0", "-1", "10"])
textual = st.sampled_from(["'x'", "'y'", "'it''s'", "''"])
atoms = st.one_of(
    st.builds(
        lambda left, sign, right: f"{left} {sign} {right}",
        numeric,
        st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
        numeric,
    ),
    st.builds(
        lambda t, sign, text: f"{t} {sign} {text}",
        st.sampled_from("tu"),
        st.sampled_from(["=", "<>"]),
        textual,
    ),
    st.builds(
        lambda t, n, one, two: f"{t} {n}IN ({one}, {two})",
        st.sampled_from("tu"),
        st.sampled_from(["", "NOT "]),
        textual,
        textual,
    ),
    st.builds(
        lambda n, no, low: f"{n} {no}BETWEEN {low} AND {low + 2}",
        st.sampled_from("nm"),
        st.sampled_from(["", "NOT "]),
        st.integers(0, 8),
    ),
    st.builds(
        lambda name, no: f"{name} IS {no}NULL",
        st.sampled_from("nmtu"),
        st.sampled_from(["", "NOT "]),
    ),
    st.sampled_from(["TRUE", "FALSE"]),
)
conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds(lambda one: f"NOT ({one})", inner),
        st.builds(lambda one: f"NOT {one}", atoms),
        st.builds(
            lambda one, word, two: f"({one} {word} {two})",
            inner,
            st.sampled_from(["AND", "OR"]),
            inner,
        ),
        st.builds(lambda one, two, three: f"{one} OR {two} AND {three}", atoms, atoms, atoms),
    ),
    max_leaves=8,
)


@pytest.mark.feature("F36")
@given(
    text=conditions,
    numbers=st.dictionaries(st.sampled_from("nm"), NUMBERS),
    texts=st.dictionaries(st.sampled_from("tu"), st.sampled_from(["x", "y", "it's", ""])),
)
def test_a_condition_means_what_it_means_to_sqlite(
    text: str, numbers: dict[str, str], texts: dict[str, str]
) -> None:
    row = [
        *(float(numbers[name]) if name in numbers else None for name in "nm"),
        *(texts.get(name) for name in "tu"),
    ]
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE message (n REAL, m REAL, t TEXT, u TEXT)")
        database.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
        (found,) = database.execute(f"SELECT count(*) FROM message WHERE {text}").fetchone()
    database.close()
    assert met(text, **numbers, **texts) is bool(found), text


@given(st.text("abz.*\\", max_size=600), st.text("abz.*\\", min_size=1, max_size=8))
def test_contains_is_what_python_finds_in_long_and_short_texts(value: str, text: str) -> None:
    for told in (value, value * 4):
        assert met(f"a CONTAINS '{text}'", a=told) is (text in told)


def test_a_condition_costs_each_look_at_each_character_of_a_property() -> None:
    found = condition("a CONTAINS 'x' OR a = '1' OR b IN ('y') OR c IS NULL")
    assert found.cost({"a": "12345", "b": "12"}) == 12
    assert found.cost({}) == 0
