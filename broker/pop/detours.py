"""Requests about popped messages that another feature answers: those that name a lite topic."""

from dataclasses import dataclass
from typing import Final

from broker.serving.parts import Shared
from broker.serving.service import Answer

# The field that names it.
LITE_TOPIC_FIELD: Final = "liteTopic"


@dataclass(slots=True)
class Detours:
    """How such requests are answered; None if nothing does."""

    ack: Answer | None = None
    hide: Answer | None = None


DETOURS: Final = Shared("detours of pops", lambda _parts: Detours())
