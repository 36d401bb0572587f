"""The format of the log."""

from typing import Final

from broker.feature import Feature
from broker.formats.commands import RAISE_FORMAT
from broker.formats.state import FORMATS

FEATURE: Final = Feature(commands=(RAISE_FORMAT,), parts=(FORMATS,))
