"""The format of the log."""

from broker.formats.gate import FormatGate
from broker.serving.parts import Parts
from broker.serving.service import Service


def service(parts: Parts) -> Service:
    gate = FormatGate(parts)
    return Service(begin_term=gate.begin_term, tick=gate.look)
