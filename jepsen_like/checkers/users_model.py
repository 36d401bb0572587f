"""Finds a model that a user wrote, by the name `module:Model`."""

from __future__ import annotations

import inspect
from collections.abc import Hashable

from dledger.declared_error import DeclaredError
from jepsen_like.checkers.models.model import Model
from jepsen_like.users_code import said, users_object


class ModelUnusable(DeclaredError):
    """A name leads to no model. Its text is one line that says what to do."""

    problem: str


def users_model(name: str) -> Model:
    """Return the model of a name such as `bank:Accounts`: a class without arguments, or an object.

    Raises ModelUnusable.
    """
    found = users_object(name, ModelUnusable)
    if isinstance(found, type):
        try:
            found = found()
        except (Exception, SystemExit) as error:
            problem = f"{name}: cannot be made without arguments: {said(error)}"
            raise ModelUnusable(problem) from error
    return _checked(name, found)


def _checked(name: str, model: object) -> Model:
    step = getattr(model, "step", None)
    if not callable(step):
        raise ModelUnusable(f"{name}: has no method step(state, operation)")
    try:
        inspect.signature(step).bind(None, None)
    except TypeError:
        raise ModelUnusable(f"{name}: its step() does not take a state and an operation") from None
    if not hasattr(model, "initial"):
        raise ModelUnusable(f"{name}: has no attribute `initial`, the state at the beginning")
    if model.initial is None or not isinstance(model.initial, Hashable):
        raise ModelUnusable(f"{name}: `initial` must have a hash, and not be None")
    return model  # type: ignore[return-value] # its attributes were looked at
