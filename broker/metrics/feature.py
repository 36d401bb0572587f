"""Metrics: looks beside other work for what takes long to find."""

from broker.metrics.lags import LAGS
from broker.serving.parts import Parts
from broker.serving.service import Service


def service(parts: Parts) -> Service:
    return Service(look_over=parts[LAGS].look_over)
