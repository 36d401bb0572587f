"""All features of the broker: every folder here that has a module `feature`.

To add one, add a folder; nothing else names it. Its function `service` makes what serves clients.
Request codes that two features claim are an error when the program starts, as are kinds of commands
and names of state, see `broker.folds`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Final

from broker.folds import modules
from broker.serving.parts import Parts
from broker.serving.service import Service

SERVICES: Final[tuple[Callable[[Parts], Service], ...]] = tuple(
    import_module(module).service for module in modules("feature")
)
