"""Methods of a state machine that clients may call, marked by `@dledger.query`. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol, TypeVar, runtime_checkable

Answer = Callable[..., object]
Made = TypeVar("Made", bound=Answer)

_MARK = "_dledger_query"


def query(method: Made) -> Made:
    """Mark a method of a state machine that clients may call by `RemoteLog.query`.

        class Prices:
            @dledger.query
            def price_of(self, name: str) -> int | None:
                return self._prices.get(name)

    It reads the state and changes nothing. It runs in the node's thread, between two applies, so it
    must be quick. Its arguments and its result are plain values (None, bool, int, float, str,
    bytes, lists, dicts). Raises TypeError for a method that is `async`, or yields.
    """
    if (
        inspect.iscoroutinefunction(method)
        or inspect.isasyncgenfunction(method)
        or inspect.isgeneratorfunction(method)
    ):
        raise TypeError(f"{method!r}: a query is a plain method that returns its result")
    setattr(method, _MARK, True)
    return method


@runtime_checkable
class HasQueries(Protocol):
    """A state machine that lists its queries itself, such as one that is composed of others."""

    def named_queries(self) -> Mapping[str, Answer]:
        """Return the methods that clients may call, by the names that clients use."""
        ...


def queries_of(machine: object) -> Mapping[str, Answer]:
    if isinstance(machine, HasQueries):
        return machine.named_queries()
    kind = type(machine)
    marked = (name for name in dir(kind) if _is_marked(inspect.getattr_static(kind, name)))
    return MappingProxyType({name: getattr(machine, name) for name in marked})


def _is_marked(member: object) -> bool:
    return getattr(member, _MARK, False) is True
