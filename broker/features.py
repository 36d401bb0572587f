"""All features of the broker: every folder here that has a module `feature`.

To add one, add a folder; nothing else names it. Request codes, kinds of commands and names of
state that two features claim are an error when the program starts.
"""

import pkgutil
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Final

import broker
from broker.errors import FeatureClash
from broker.feature import Feature
from broker.log.registry import Registry
from broker.log.state import BrokerState


def registry_of(features: Sequence[Feature]) -> Registry:
    """What features add to the log. Raises FeatureClash."""
    records = [feature.records for feature in features if feature.records is not None]
    if len(records) != 1:
        raise FeatureClash(f"{len(records)} features fold message records: one has to")
    return Registry(
        [command for feature in features for command in feature.commands],
        [part for feature in features for part in feature.parts],
        records[0],
    )


def _found() -> tuple[Feature, ...]:
    """The features in the order of their folders' names."""
    folders = sorted(one.name for one in pkgutil.iter_modules(broker.__path__) if one.ispkg)
    modules = [f"broker.{folder}.feature" for folder in folders]
    return tuple(import_module(name).FEATURE for name in modules if find_spec(name) is not None)


FEATURES: Final = _found()
REGISTRY: Final = registry_of(FEATURES)


def empty_state() -> BrokerState:
    """The state of an empty log."""
    return BrokerState(REGISTRY)
