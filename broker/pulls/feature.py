"""Pulls."""

from broker.access.guard import ACCESS_GUARD
from broker.errors import RequestRefused
from broker.pulls.held_pulls import HELD_PULLS
from broker.pulls.processor import PullProcessor
from broker.pulls.pulled_offsets import PULLED_OFFSETS
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import CONSUMES
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    held, pulled = parts[HELD_PULLS], parts[PULLED_OFFSETS]

    def end_term(refusal: RequestRefused) -> None:
        processor.end_term(refusal)
        pulled.clear()

    processor = PullProcessor(parts)
    parts[ACCESS_GUARD].watchers.append(processor.ask_again)

    def figures() -> dict[str, str]:
        return {"pullHeld": str(len(held)), "pullThreadPoolQueueSize": str(len(held))}

    return Service(
        handlers={
            RequestCode.PULL_MESSAGE: Handler(processor.pull, CONSUMES, while_ending=True),
            RequestCode.LITE_PULL_MESSAGE: Handler(processor.pull, CONSUMES, while_ending=True),
        },
        end_term=end_term,
        ending=processor.commit_no_more,
        applied=processor.wake,
        tick=processor.expire,
        dropped=processor.drop,
        figures=figures,
    )
