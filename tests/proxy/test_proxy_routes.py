"""Routes and assignments: what a client has sent comes back in each queue, within bounds."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from proxy.wire import messages_pb2 as messages
from proxy.wire.messages_pb2 import Code
from tests.proxy.scripted_brokers import scripted_proxy

Asked = messages.QueryRouteRequest | messages.QueryAssignmentRequest


def asking(kind: type[Asked], namespace: str) -> Asked:
    request = kind()
    request.topic.name, request.topic.resource_namespace = "Orders", namespace
    request.endpoints.addresses.add(host="127.0.0.1", port=8081)
    if isinstance(request, messages.QueryAssignmentRequest):
        request.group.name = "readers"
    return request


@pytest.mark.parametrize("kind", [messages.QueryRouteRequest, messages.QueryAssignmentRequest])
async def test_a_namespace_comes_back_in_each_queue_and_a_huge_one_is_refused(
    kind: type[Asked], autojump_clock: MockClock
) -> None:
    async with scripted_proxy() as here:
        here.brokers.topic("Orders", 16)
        here.brokers.groups["readers"] = {"consumeMessageOrderly": True}
        client = await here.client()
        answer = await client.unary(asking(kind, "n" * 255))
        assert answer.status.code == Code.OK
        queues = (
            list(answer.message_queues)
            if isinstance(answer, messages.QueryRouteResponse)
            else [one.message_queue for one in answer.assignments]
        )
        assert [one.topic.resource_namespace for one in queues] == ["n" * 255] * 16
        answer = await client.unary(asking(kind, "n" * 256))
        assert answer.status.code == Code.ILLEGAL_TOPIC
        assert answer.ByteSize() < 1000
