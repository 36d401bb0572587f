"""Finds the service that a user names, as `module:Machine`."""

from __future__ import annotations

from dledger.errors import DLedgerError
from jepsen_like.chaos.service import ServiceUnusable
from jepsen_like.simulation.service.service import Service, service_of
from jepsen_like.users_code import raised_in, users_object


def service_named(name: str) -> Service:
    """Return the service of a name such as `counter:Counter`, a class or a Service.

    Raises ServiceUnusable.
    """
    if not name.partition(":")[2]:
        raise ServiceUnusable(f"{name}: name a module and what is in it, as in counter:Counter")
    found = users_object(name, ServiceUnusable)
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
