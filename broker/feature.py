"""A feature of the broker: a folder that says here what it adds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.log.folded import Folded
from broker.log.registry import CommandType, FoldsRecords
from broker.log.state import BrokerState, StatePart
from broker.serving.parts import Parts
from broker.serving.service import Service


@dataclass(frozen=True, kw_only=True)
class Feature:
    """What a folder adds to the broker. Its module `feature` has one, named FEATURE.

    Attributes:
        commands: kinds of log commands.
        parts: parts of the state.
        records: folds message records; of one feature only.
        service: makes what serves clients.
    """

    commands: tuple[CommandType[Any], ...] = ()
    parts: tuple[StatePart[Any], ...] = ()
    records: Callable[[BrokerState, Folded], FoldsRecords] | None = None
    service: Callable[[Parts], Service] = lambda _parts: Service()
