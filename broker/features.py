"""All features of the broker: a feature is a folder, and nothing else names it.

What it adds to the log are the values of `CommandType` in its module `commands`, and those of
`StatePart` in its module `state`. What it has for clients is found by `broker.services`. Kinds of
commands and names of state that two features claim are an error when the program starts.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from importlib.util import find_spec
from typing import Final, TypeVar

import broker
from broker.log.state import BrokerState, CommandType, Registry, StatePart
from broker.messages.fold import RecordFold

T = TypeVar("T")


def modules(name: str) -> list[str]:
    """The modules of this name, in the order of their folders' names."""
    folders = sorted(one.name for one in pkgutil.iter_modules(broker.__path__) if one.ispkg)
    found = [f"broker.{folder}.{name}" for folder in folders]
    return [module for module in found if find_spec(module) is not None]


def _values(name: str, kind: type[T]) -> list[T]:
    """All values of a kind in the modules of this name."""
    found = [value for module in modules(name) for value in vars(import_module(module)).values()]
    return list(dict.fromkeys(value for value in found if isinstance(value, kind)))


REGISTRY: Final = Registry(
    _values("commands", CommandType), _values("state", StatePart), RecordFold
)


def empty_state() -> BrokerState:
    """The state of an empty log."""
    return BrokerState(REGISTRY)
