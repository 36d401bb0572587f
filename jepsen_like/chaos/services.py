"""Finds the service of a run: a workload by its name, or a user's class by `module:Class`."""

from __future__ import annotations

import inspect
from types import ModuleType

from jepsen_like.chaos.service import Described, ServiceUnusable
from jepsen_like.chaos.workloads.catalogue import WORKLOADS
from jepsen_like.users_code import said, users_module

USERS_SERVICE_MARK = ":"


def find_service(name: str) -> Described:
    """Return the service of a name such as `register` or `my_module:Machine`.

    A user's name leads to a class with `machine` and `generate`, or to a state machine that exactly
    one such class of its module has as `machine`. Raises ServiceUnusable.
    """
    if USERS_SERVICE_MARK not in name:
        if name not in WORKLOADS:
            raise ServiceUnusable(f"no workload is named {name}: `jepsen-like list` has them all")
        return Described(WORKLOADS[name](), name)
    module_name, _, path = name.partition(USERS_SERVICE_MARK)
    module = users_module(name, ServiceUnusable)
    found = getattr(module, path, None)
    if found is None:
        raise ServiceUnusable(f"{name}: {module_name} has no {path}")
    service: object = found if _is_service(found) else _service_of(name, module, found)
    try:
        made = service() if isinstance(service, type) else service
    except (Exception, SystemExit) as error:
        raise ServiceUnusable(f"{name}: cannot be made without arguments: {said(error)}") from error
    return Described(made, name)  # type: ignore[arg-type] # its attributes were looked at


def _is_service(found: object) -> bool:
    return callable(getattr(found, "generate", None)) and hasattr(found, "machine")


def _service_of(name: str, module: ModuleType, machine: object) -> object:
    """Return the class of a module that has a machine as `machine`."""
    classes = [
        each
        for each in vars(module).values()
        if inspect.isclass(each) and _is_service(each) and each.__dict__.get("machine") is machine
    ]
    if len(classes) != 1:
        what = "no class" if not classes else f"{len(classes)} classes"
        raise ServiceUnusable(
            f"{name}: {what} of {module.__name__} with generate() and `machine = "
            f"{getattr(machine, '__name__', machine)}`: write one, or name the one you mean"
        )
    return classes[0]
