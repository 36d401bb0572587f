"""The settings that clients send."""

from __future__ import annotations

from proxy.wire.messages_pb2 import ClientType, FilterType, Language, Settings


def producer_settings(*topics: str, language: Language = Language.JAVA) -> Settings:
    made = Settings(client_type=ClientType.PRODUCER)
    made.access_point.addresses.add(host="127.0.0.1", port=8081)
    made.request_timeout.FromSeconds(3)
    made.publishing.SetInParent()
    for topic in topics:
        made.publishing.topics.add(name=topic)
    made.user_agent.language = language
    return made


def consumer_settings(
    *topics: str,
    group: str = "readers",
    kind: ClientType = ClientType.PUSH_CONSUMER,
    language: Language = Language.JAVA,
) -> Settings:
    made = Settings(client_type=kind)
    made.access_point.addresses.add(host="127.0.0.1", port=8081)
    made.request_timeout.FromSeconds(3)
    made.subscription.group.name = group
    for topic in topics:
        entry = made.subscription.subscriptions.add()
        entry.topic.name = topic
        entry.expression.type, entry.expression.expression = FilterType.TAG, "*"
    made.user_agent.language = language
    return made
