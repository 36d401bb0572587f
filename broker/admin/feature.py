"""Administrators' requests."""

from functools import partial

from broker.admin.processor import AdminProcessor
from broker.admin.settings_processor import SettingsProcessor
from broker.admin.statistics import Statistics
from broker.serving.member import MEMBER
from broker.serving.needs import Action
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import LOOK, OPERATE, on_topic
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    processor = AdminProcessor(parts, parts[MEMBER].node.status)
    settings = SettingsProcessor(parts)
    statistics = Statistics(parts)
    any_role = partial(Handler, any_role=True)
    return Service(
        handlers={
            RequestCode.GET_BROKER_RUNTIME_INFO: any_role(processor.runtime_info, LOOK),
            RequestCode.GET_BROKER_CONFIG: any_role(settings.show, LOOK),
            RequestCode.UPDATE_BROKER_CONFIG: Handler(settings.change, OPERATE, is_audited=True),
            RequestCode.GET_BROKER_HA_STATUS: any_role(processor.replication, LOOK),
            RequestCode.VIEW_MESSAGE_BY_ID: Handler(processor.view_message, processor.view_needs),
            RequestCode.GET_TOPIC_STATS_INFO: Handler(
                statistics.topic_stats, on_topic(Action.GET, Action.SUB), confirmed=True
            ),
            RequestCode.GET_BROKER_CONSUME_STATS: Handler(
                statistics.all_consume_stats, LOOK, confirmed=True
            ),
            RequestCode.GET_CONSUME_STATS: Handler(
                statistics.consume_stats, statistics.needs, confirmed=True
            ),
        }
    )
