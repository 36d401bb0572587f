"""Hostile values in every field of every call: each gets an answer, and others are served."""

from __future__ import annotations

import logging
from itertools import islice

import pytest
import trio
from google.protobuf.message import Message
from trio.testing import MockClock

from proxy.service import Service
from proxy.wire import messages_pb2 as messages
from proxy.wire.messages_pb2 import Code
from remoting.wire.codes import RequestCode
from tests.examples import seeds
from tests.proxy.field_values import hostile
from tests.proxy.grpc_client import GrpcClient, GrpcFailed
from tests.proxy.real_proxy import acknowledging, changing, message, receiving, sending
from tests.proxy.scripted_brokers import ScriptedProxy, record, scripted_proxy
from tests.proxy.settings_of_clients import consumer_settings, producer_settings

HANDLE = "0 1700000000000 60000 0 0 broker-a 0 7 7000"
TOPIC = "Orders"

# So many values come from one another in each field, over all runs.
_SHARES = 5

# INVALID_ARGUMENT, DEADLINE_EXCEEDED, UNAVAILABLE
_OF_THE_CLIENT = (3, 4, 14)


def _endpoints(request: messages.QueryRouteRequest | messages.QueryAssignmentRequest) -> None:
    request.topic.name = TOPIC
    request.endpoints.addresses.add(host="127.0.0.1", port=8081)


def templates() -> list[Message]:
    """A good request of each method, with most of its fields."""
    route, assignment = messages.QueryRouteRequest(), messages.QueryAssignmentRequest()
    _endpoints(route)
    _endpoints(assignment)
    assignment.group.name = "readers"
    recall = messages.RecallMessageRequest(recall_handle="djEgYSBicm9rZXItYSAxIDI=")
    recall.topic.name = TOPIC
    ended = messages.EndTransactionRequest(
        transaction_id="MSAxIDIgYnJva2VyLWEgaWQ=", resolution=messages.TransactionResolution.COMMIT
    )
    ended.topic.name = TOPIC
    forwarded = messages.ForwardMessageToDeadLetterQueueRequest(
        receipt_handle=HANDLE, message_id="id"
    )
    forwarded.topic.name, forwarded.group.name = TOPIC, "readers"
    heartbeat = messages.HeartbeatRequest(client_type=messages.ClientType.PUSH_CONSUMER)
    heartbeat.group.name = "readers"
    ends = messages.NotifyClientTerminationRequest()
    ends.group.name = "readers"
    lite = messages.SyncLiteSubscriptionRequest(lite_topic_set=["a"], version=1)
    lite.topic.name, lite.group.name = TOPIC, "readers"
    lite.offset_option.offset = 1
    received = receiving(TOPIC, attempt="an attempt")
    sent = message(TOPIC, tag="t", keys=["k"], user={"a": "b"}, trace_context="trace")
    return [
        *(route, assignment, recall, ended, forwarded, heartbeat, ends, received, sending(sent)),
        lite,
        *(acknowledging(TOPIC, HANDLE), changing(TOPIC, HANDLE, 30)),
        *(
            messages.TelemetryCommand(settings=settings)
            for settings in (producer_settings(TOPIC), consumer_settings(TOPIC))
        ),
    ]


def _method(request: Message) -> str:
    name = type(request).__name__
    return "Telemetry" if name == "TelemetryCommand" else name.removesuffix("Request")


async def _call(client: GrpcClient, request: Message) -> None:
    """Make a call. Any status is an answer."""
    method = _method(request)
    call = await client.call(method, timeout_s=8)
    try:
        await call.send(request, is_last=True)
        while (data := await call.receive()) is not None:
            kind = "TelemetryCommand" if method == "Telemetry" else f"{method}Response"
            getattr(messages, kind).FromString(data)
    except GrpcFailed as failed:
        if failed.code not in _OF_THE_CLIENT:
            raise


async def _serves(here: ScriptedProxy) -> None:
    neighbour = await here.client()
    answer = await neighbour.unary(sending(message(TOPIC)))
    assert answer.status.code == Code.OK


def test_every_method_is_attacked() -> None:
    served = {name.removeprefix("/apache.rocketmq.v2.MessagingService/") for name in _methods()}
    assert {_method(one) for one in templates()} == served


def _methods() -> set[str]:
    nothing: object = type("Nothing", (), {"__getattr__": lambda _self, _name: None})()
    service = Service(*[nothing] * 6)  # type: ignore[arg-type]
    return set(service._answers)


@pytest.mark.parametrize("share", seeds(_SHARES, 1))
async def test_hostile_values_are_answered(
    share: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    failed: list[str] = []
    async with scripted_proxy() as here:
        here.brokers.topic(TOPIC)
        here.brokers.types[TOPIC] = "MIXED"
        client = await here.client()
        for template in templates():
            for shown, request in islice(hostile(template), share, None, _SHARES):
                here.brokers.given = [[record(TOPIC, 7)]]
                caplog.clear()
                try:
                    with trio.fail_after(30):
                        await _call(client, request)
                except Exception as error:
                    failed.append(f"{_method(template)} {shown}: {error!r:.200}")
                failed += [
                    f"{_method(template)} {shown}: {line.exc_info and line.exc_info[1]!r:.200}"
                    for line in caplog.records
                ]
        await _serves(here)
        assert RequestCode.SEND_MESSAGE_V2 in here.brokers.codes()
    assert not failed, "\n".join(failed[:60])
