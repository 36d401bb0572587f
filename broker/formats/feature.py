"""The format of the log: what its entries may hold."""

from typing import Final

from broker.feature import Feature
from broker.formats.commands import RAISE_FORMAT
from broker.formats.gate import READ_BY_ALL, FormatGate
from broker.formats.state import FORMATS
from broker.serving.parts import Parts
from broker.serving.service import Service


def _service(parts: Parts) -> Service:
    gate = FormatGate(parts.state, parts.log, parts[READ_BY_ALL], lambda: parts.announce(None))
    return Service(begin_term=gate.begin_term, tick=gate.look)


FEATURE: Final = Feature(commands=(RAISE_FORMAT,), parts=(FORMATS,), service=_service)
