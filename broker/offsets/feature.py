"""Offsets."""

from functools import partial

from broker.errors import RequestRefused
from broker.offsets.commits import OFFSET_COMMITS
from broker.offsets.generations import GENERATIONS
from broker.offsets.processor import OffsetProcessor, knows_refusals_of_offsets
from broker.serving.needs import Action
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import LOOK, READS, on_group_and_topic
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    commits = parts[OFFSET_COMMITS]
    generations = parts[GENERATIONS]
    processor = OffsetProcessor(parts)

    def end_term(refusal: RequestRefused) -> None:
        commits.refuse_waiting(refusal)
        generations.clear()

    confirmed = partial(Handler, confirmed=True)
    return Service(
        handlers={
            RequestCode.QUERY_CONSUMER_OFFSET: confirmed(
                processor.query,
                on_group_and_topic(Action.SUB, Action.GET),
                is_told=knows_refusals_of_offsets,
            ),
            RequestCode.UPDATE_CONSUMER_OFFSET: Handler(
                processor.update, on_group_and_topic(Action.SUB, Action.UPDATE)
            ),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: confirmed(processor.search, READS),
            RequestCode.GET_MAX_OFFSET: confirmed(processor.maximum, READS),
            RequestCode.GET_MIN_OFFSET: confirmed(processor.minimum, READS),
            RequestCode.GET_EARLIEST_MSG_STORETIME: confirmed(processor.earliest_time, READS),
            RequestCode.GET_ALL_CONSUMER_OFFSET: confirmed(processor.all_offsets, LOOK),
        },
        end_term=end_term,
        ending=commits.flush_all,
        flush=commits.flush,
        tick=commits.flush_all,
        dropped=generations.drop,
    )
