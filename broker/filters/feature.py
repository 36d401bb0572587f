"""SQL92 filters. Heartbeats bring them (`broker.consumers`), and pulls go by them."""

from broker.filters.changes import FILTER_CHANGES
from broker.filters.loading import load_parser_early
from broker.filters.processor import FilterProcessor
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    """What serves clients."""
    return Service(
        handlers={RequestCode.CHECK_CLIENT_CONFIG: Handler(FilterProcessor().check, any_role=True)},
        begin_term=parts[FILTER_CHANGES].begin_term,
        tasks=(load_parser_early,),
    )
