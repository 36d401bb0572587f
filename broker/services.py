"""What serves clients: the function `service` in the module `feature` of each feature's folder.

Request codes that two features claim are an error when the program starts.
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
