"""Topics."""

from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.own_topics import OWN_TOPICS
from broker.topics.processor import TopicProcessor
from broker.topics.state import TOPICS
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    processor = TopicProcessor(parts)
    topics = parts.state[TOPICS]
    return Service(
        handlers={
            RequestCode.UPDATE_AND_CREATE_TOPIC: Handler(processor.put_topic),
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: Handler(processor.put_topics),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Handler(
                processor.system_topics, any_role=True
            ),
            RequestCode.CLEAN_UNUSED_TOPIC: Handler(processor.clean_unused, any_role=True),
            RequestCode.DELETE_TOPIC_IN_BROKER: Handler(processor.delete_topic),
            RequestCode.GET_TOPIC_CONFIG: Handler(processor.topic_config),
            RequestCode.GET_ALL_TOPIC_CONFIG: Handler(processor.all_topics),
        },
        begin_term=parts[OWN_TOPICS].begin_term,
        figures=lambda: {"topics": str(len(topics.configs))},
    )
