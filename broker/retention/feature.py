"""Retention."""

from typing import Final

from broker.feature import Feature
from broker.retention.commands import KEEP_LOG_FROM
from broker.retention.keeper import LOG_KEEPER
from broker.serving.parts import Parts
from broker.serving.service import Service


def _service(parts: Parts) -> Service:
    return Service(tasks=(parts[LOG_KEEPER].run,))


FEATURE: Final = Feature(commands=(KEEP_LOG_FROM,), service=_service)
