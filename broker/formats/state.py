"""The newest format of later entries."""

from dataclasses import dataclass
from typing import Final

from broker.log.command_layout import FIRST_VERSION
from broker.log.state import StatePart


@dataclass(slots=True)
class Formats:
    """`format_version`: the newest version of entries that do not carry one of their own."""

    format_version: int = FIRST_VERSION


FORMATS: Final = StatePart("formats", Formats, numbers=("format_version",))
