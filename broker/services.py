"""The services of all features: the function `service` in each module `feature`.

If two features claim one request code, the program does not start.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Final

from broker.features import modules
from broker.serving.parts import Parts
from broker.serving.service import Service

SERVICES: Final[tuple[Callable[[Parts], Service], ...]] = tuple(
    import_module(module).service for module in modules("feature")
)
