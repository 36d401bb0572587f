"""Topics."""

from broker.serving.needs import Action
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import LOOK, OPERATE, on_topic
from broker.topics.own_topics import OWN_TOPICS
from broker.topics.processor import TopicProcessor
from broker.topics.state import TOPICS
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    processor = TopicProcessor(parts)
    topics = parts.state[TOPICS]
    return Service(
        handlers={
            RequestCode.UPDATE_AND_CREATE_TOPIC: Handler(
                processor.put_topic, on_topic(Action.CREATE, Action.UPDATE), is_audited=True
            ),
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: Handler(
                processor.put_topics, OPERATE, is_audited=True
            ),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Handler(
                processor.system_topics, LOOK, any_role=True
            ),
            RequestCode.CLEAN_UNUSED_TOPIC: Handler(
                processor.clean_unused, OPERATE, any_role=True, is_audited=True
            ),
            RequestCode.DELETE_TOPIC_IN_BROKER: Handler(
                processor.delete_topic, on_topic(Action.DELETE), is_audited=True
            ),
            RequestCode.GET_TOPIC_CONFIG: Handler(
                processor.topic_config, on_topic(Action.GET, Action.PUB, Action.SUB)
            ),
            RequestCode.GET_ALL_TOPIC_CONFIG: Handler(processor.all_topics, LOOK),
        },
        begin_term=parts[OWN_TOPICS].begin_term,
        figures=lambda: {"topics": str(len(topics.configs))},
    )
