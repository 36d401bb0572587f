"""The newest format that the log may have from here on."""

from dataclasses import dataclass
from typing import Final

from broker.log.command_layout import FIRST_VERSION
from broker.log.state import StatePart


@dataclass(slots=True)
class Formats:
    """What the log was raised to.

    Attributes:
        format_version: entries that do not carry a version of their own may be of this one.
    """

    format_version: int = FIRST_VERSION


FORMATS: Final = StatePart("formats", Formats, numbers=("format_version",))
