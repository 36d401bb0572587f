"""Finds the service that a user names, as `module:Machine`."""

from __future__ import annotations

import importlib

from dledger.declared_error import DeclaredError
from dledger.errors import DLedgerError
from jepsen_like.simulation.service.service import Service, service_of
from jepsen_like.users_code import raised_in


class ServiceUnusable(DeclaredError):
    """A name leads to nothing that can be simulated. Its text is one line that says what to do."""

    problem: str


def service_named(name: str) -> Service:
    """Return the service of a name such as `counter:Counter`, a class or a Service.

    Raises ServiceUnusable.
    """
    module_name, colon, path = name.partition(":")
    if not colon or not path:
        raise ServiceUnusable(f"{name}: name a module and what is in it, as in counter:Counter")
    try:
        found: object = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise ServiceUnusable(f"{name}: cannot import {module_name}: {raised_in(error)}") from error
    origin = getattr(found, "__file__", None) or "Python itself"
    for part in path.split("."):
        if not hasattr(found, part):
            raise ServiceUnusable(f"{name}: {module_name} of {origin} has no {path}")
        found = getattr(found, part)
    if not isinstance(found, Service) and not callable(found):
        raise ServiceUnusable(
            f"{name} is an object: name the class of the state machine, or a jepsen_like.Service"
        )
    try:
        service = service_of(found)
        service.check()
    except DLedgerError as error:
        raise ServiceUnusable(f"{name}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ServiceUnusable(
            f"{name}: cannot be made without arguments: {raised_in(error)}"
        ) from error
    return service
