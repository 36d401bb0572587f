"""Pulls."""

from typing import Final

from broker.consumers.members import CONSUMERS
from broker.errors import RequestRefused
from broker.limits import MAX_HOLD_SECONDS
from broker.offsets.commits import OFFSET_COMMITS
from broker.offsets.generations import GENERATIONS
from broker.pulls.held_pulls import HeldPulls
from broker.pulls.processor import PullProcessor
from broker.pulls.pulled_offsets import PULLED_OFFSETS
from broker.pulls.readable import READABLE
from broker.serving.parts import Parts, Shared
from broker.serving.service import Handler, Service
from broker.settings.settings import SETTINGS
from broker.store.message_reader import MESSAGE_READER
from broker.traffic.traffic import TRAFFIC
from remoting.wire.codes import RequestCode

HELD_PULLS: Final = Shared(
    "held pulls", lambda parts: HeldPulls(parts.config.limits.max_held_pulls)
)


def service(parts: Parts) -> Service:
    """What serves clients."""
    held, pulled = parts[HELD_PULLS], parts[PULLED_OFFSETS]

    def end_term(refusal: RequestRefused) -> None:
        processor.end_term(refusal)
        pulled.clear()

    processor = PullProcessor(
        parts.state,
        parts.log,
        parts[MESSAGE_READER],
        parts[CONSUMERS],
        parts[OFFSET_COMMITS],
        parts[GENERATIONS],
        held,
        pulled,
        parts[TRAFFIC],
        parts[READABLE],
        parts.clock,
        parts.wall_clock_ms,
        MAX_HOLD_SECONDS,
        parts[SETTINGS],
        parts.work,
    )

    def figures() -> dict[str, str]:
        return {"pullHeld": str(len(held)), "pullThreadPoolQueueSize": str(len(held))}

    return Service(
        handlers={
            RequestCode.PULL_MESSAGE: Handler(processor.pull, while_ending=True),
            RequestCode.LITE_PULL_MESSAGE: Handler(processor.pull, while_ending=True),
        },
        end_term=end_term,
        ending=processor.commit_no_more,
        applied=processor.wake,
        tick=processor.expire,
        dropped=processor.drop,
        figures=figures,
    )
