"""The format of the log: what its entries may hold."""

from broker.formats.gate import FormatGate
from broker.serving.parts import Parts
from broker.serving.service import Service


def service(parts: Parts) -> Service:
    """What serves clients."""
    gate = FormatGate(parts)
    return Service(begin_term=gate.begin_term, tick=gate.look)
