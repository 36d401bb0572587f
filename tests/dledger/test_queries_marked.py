"""Which methods of a state machine are queries."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

import dledger
from dledger.machines import Objects, ReplicatedCounter, ReplicatedDict
from dledger.queries import queries_of


class Prices:
    other = Mock()

    @dledger.query
    def price_of(self, name: str) -> int:
        return len(name)

    def secret(self) -> int:
        return 1

    @property
    def never_looked_at(self) -> int:
        raise AssertionError


class Dearer(Prices):
    @dledger.query
    def tax(self) -> int:
        return 2


class Closed(Prices):
    def price_of(self, name: str) -> int:
        return 0


def test_marked_methods_are_queries_and_no_others() -> None:
    assert {name: method("tea") for name, method in queries_of(Prices()).items()} == {"price_of": 3}
    assert set(queries_of(Dearer())) == {"price_of", "tax"}
    assert queries_of(Closed()) == {}
    assert queries_of(dledger.LogOnly()) == {}


def test_a_marked_method_stays_what_it_was() -> None:
    assert Prices().price_of("milk") == 4


def test_what_waits_or_yields_is_no_query() -> None:
    async def waits() -> None: ...

    async def both() -> Any:
        yield 1

    def yields() -> Any:
        yield 1

    for wrong in (waits, both, yields):
        with pytest.raises(TypeError, match="a query is a plain method"):
            dledger.query(wrong)


def test_queries_of_objects_have_the_names_of_the_objects() -> None:
    machine = Objects(prices=ReplicatedDict(), visits=ReplicatedCounter())
    assert set(queries_of(machine)) == {"prices.get", "prices.size", "visits.get"}
