"""All features of the broker: every subfolder is one, and no list names them.

A feature adds to the log the `CommandType` values in its module `commands` and the `StatePart`
values in its module `state`. `broker.services` finds what it does for clients. If two features
claim one kind of command or one name of state, the program does not start.
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
    """Return the modules of this name in all features, sorted by folder."""
    folders = sorted(one.name for one in pkgutil.iter_modules(broker.__path__) if one.ispkg)
    found = [f"broker.{folder}.{name}" for folder in folders]
    return [module for module in found if find_spec(module) is not None]


def _values(name: str, kind: type[T]) -> list[T]:
    found = [value for module in modules(name) for value in vars(import_module(module)).values()]
    return list(dict.fromkeys(value for value in found if isinstance(value, kind)))


REGISTRY: Final = Registry(
    _values("commands", CommandType), _values("state", StatePart), RecordFold
)


def empty_state() -> BrokerState:
    return BrokerState(REGISTRY)
