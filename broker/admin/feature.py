"""What administrators ask."""

from functools import partial

from broker.admin.processor import AdminProcessor
from broker.admin.replication import Replication
from broker.admin.settings_processor import SettingsProcessor
from broker.admin.statistics import Statistics
from broker.consumers.members import CONSUMERS
from broker.pulls.pulled_offsets import PULLED_OFFSETS
from broker.serving.member import MEMBER
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.settings.settings import SETTINGS
from broker.store.message_reader import MESSAGE_READER
from broker.traffic.traffic import TRAFFIC
from remoting.wire.codes import RequestCode


def settings_processor(parts: Parts) -> SettingsProcessor:
    """Shows and changes settings. It needs neither connections nor the node."""
    return SettingsProcessor(
        parts.state,
        parts.log,
        parts[SETTINGS],
        parts.led_term,
        parts.announce,
        parts.wall_clock_ms,
    )


def service(parts: Parts) -> Service:
    """What serves clients."""
    reader = parts[MESSAGE_READER]
    processor = AdminProcessor(reader, parts.figures)
    settings = settings_processor(parts)
    statistics = Statistics(
        parts.state,
        reader,
        parts[CONSUMERS],
        parts[PULLED_OFFSETS],
        parts[TRAFFIC],
        parts.config.group,
        str(parts.config.address),
    )
    replication = Replication(parts[MEMBER].node.status, parts.config.peers)
    any_role = partial(Handler, any_role=True)
    return Service(
        handlers={
            RequestCode.GET_BROKER_RUNTIME_INFO: any_role(processor.runtime_info),
            RequestCode.GET_BROKER_CONFIG: any_role(settings.show),
            RequestCode.UPDATE_BROKER_CONFIG: Handler(settings.change),
            RequestCode.GET_BROKER_HA_STATUS: any_role(replication.show),
            RequestCode.VIEW_MESSAGE_BY_ID: Handler(processor.view_message),
            RequestCode.GET_TOPIC_STATS_INFO: Handler(statistics.topic_stats, confirmed=True),
            RequestCode.GET_BROKER_CONSUME_STATS: Handler(
                statistics.all_consume_stats, confirmed=True
            ),
            RequestCode.GET_CONSUME_STATS: Handler(statistics.consume_stats, confirmed=True),
        }
    )
