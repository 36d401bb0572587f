"""Administrators' requests."""

from functools import partial

from broker.admin.processor import AdminProcessor
from broker.admin.settings_processor import SettingsProcessor
from broker.admin.statistics import Statistics
from broker.serving.member import MEMBER
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    processor = AdminProcessor(parts, parts[MEMBER].node.status)
    settings = SettingsProcessor(parts)
    statistics = Statistics(parts)
    any_role = partial(Handler, any_role=True)
    return Service(
        handlers={
            RequestCode.GET_BROKER_RUNTIME_INFO: any_role(processor.runtime_info),
            RequestCode.GET_BROKER_CONFIG: any_role(settings.show),
            RequestCode.UPDATE_BROKER_CONFIG: Handler(settings.change),
            RequestCode.GET_BROKER_HA_STATUS: any_role(processor.replication),
            RequestCode.VIEW_MESSAGE_BY_ID: Handler(processor.view_message),
            RequestCode.GET_TOPIC_STATS_INFO: Handler(statistics.topic_stats, confirmed=True),
            RequestCode.GET_BROKER_CONSUME_STATS: Handler(
                statistics.all_consume_stats, confirmed=True
            ),
            RequestCode.GET_CONSUME_STATS: Handler(statistics.consume_stats, confirmed=True),
        }
    )
