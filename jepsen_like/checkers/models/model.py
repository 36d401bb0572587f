"""The interface of models: objects whose operations happen one after another."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import Protocol

from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Value


class Model(Protocol):
    """An object whose operations happen one after another.

    Some further attributes are used if a model has them:

    - `functions`, a set of names: an operation of any other function makes a history unreadable;
    - `observes(operation)`: whether the operation never changes any state, such as a read. It
      makes searches much shorter, and wrong ones if it is not so;
    - `ignores_processes = True`: it does not matter which process an operation is of. Searches
      with unknown outcomes are shorter then;
    - `toward(state, observer)` and `brings(operation, observer)`, both or none: whether operations
      other than those that `brings` names may lead from a state to what `observer` returned. Both
      must say yes when in doubt. With them, `dead`: a state for all those whose content is
      overwritten before any operation can observe it;
    - `overwrites(operation)`: whether the operation can always happen, and the state after it does
      not depend on that before;
    - `blind`, a set of names: functions whose operations can happen in every state, whatever they
      return. A history with answers of these alone shows nothing;
    - `told(state)`: the state in words, such as "the register holds 3";
    - `whole = True`: all keys are one object. Otherwise each key is an object of its own.
    """

    @property
    def initial(self) -> Hashable:
        """The state in which an object begins: anything with a hash but None."""

    def step(self, state: Hashable, operation: Operation, /) -> Hashable | None:
        """Return the state after an operation; None if it cannot happen in this state.

        If `operation.ok`, its outcome was `operation.result`, and a step that would return
        something else cannot happen. Otherwise its result is unknown. The state depends on the
        arguments alone.
        """


class Nothing(Enum):
    """The state of an empty object: None says that a step cannot happen."""

    NOTHING = "nothing"


NOTHING = Nothing.NOTHING


def as_state(value: Value) -> Hashable:
    return NOTHING if value is None else value


def as_value(state: Hashable) -> Value:
    return None if state is NOTHING else state
