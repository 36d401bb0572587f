"""Do what lines of standard input ask for with the Python client of RocketMQ 5.

The words are those of `tests/clients/driver.py`. Runs in a virtual environment of its own.
"""

import base64
import json
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import rocketmq  # type: ignore[import-not-found,unused-ignore]
from rocketmq import (  # type: ignore[import-not-found,attr-defined,unused-ignore]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    LitePushConsumer,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType  # type: ignore[import-not-found,unused-ignore]

SETTINGS_S = 10
RESOLUTIONS = {
    "commit": TransactionResolution.COMMIT,
    "rollback": TransactionResolution.ROLLBACK,
    "unknown": TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
}

Asked = dict[str, Any]

printing = threading.Lock()
clients: dict[str, Any] = {}
received: dict[int, Any] = {}


def tell(told: Asked) -> None:
    with printing:
        print(json.dumps(told), flush=True)


def shown(message: Any) -> Asked:
    with printing:
        number = len(received)
        received[number] = message
    return {
        "number": number,
        "topic": message.topic,
        "body": base64.b64encode(message.body).decode(),
        "tag": message.tag,
        "keys": sorted(message.keys or ()),
        "properties": dict(message.properties or {}),
        "group": message.message_group,
        "lite": message.lite_topic,
        "id": message.message_id,
        "attempt": message.delivery_attempt,
    }


class Checker(TransactionChecker):  # type: ignore[misc,unused-ignore]
    def check(self, message: Any) -> Any:
        tell({"event": "check", **shown(message)})
        return RESOLUTIONS[message.properties["check"]]


class Listener(MessageListener):  # type: ignore[misc,unused-ignore]
    def __init__(self, name: str) -> None:
        self._name = name
        self._deliveries: Counter[str] = Counter()

    def consume(self, message: Any) -> Any:
        with printing:
            self._deliveries[message.message_id] += 1
            deliveries = self._deliveries[message.message_id]
        tell({"event": "message", "name": self._name, **shown(message)})
        time.sleep(int(message.properties.get("hold", "0")) / 1000)
        is_failure = deliveries <= int(message.properties.get("fail", "0"))
        return ConsumeResult.FAILURE if is_failure else ConsumeResult.SUCCESS


def configuration(asked: Asked) -> Any:
    credentials = Credentials(asked["user"], asked["secret"]) if asked["user"] else Credentials()
    return ClientConfiguration(asked["endpoints"], credentials)


def subscriptions(asked: Asked) -> Asked:
    return {
        one["topic"]: FilterExpression(one["sql"], FilterType.SQL)
        if "sql" in one
        else FilterExpression(one.get("tag", "*"))
        for one in asked["subscriptions"]
    }


def message_of(asked: Asked) -> Any:
    message = Message()
    message.topic = asked["topic"]
    message.body = base64.b64decode(asked["body"])
    if "tag" in asked:
        message.tag = asked["tag"]
    for key in asked.get("keys", ()):
        message.keys = key  # one more each time
    for name, value in asked.get("properties", {}).items():
        message.add_property(name, value)
    if "group" in asked:
        message.message_group = asked["group"]
    if "lite" in asked:
        message.lite_topic = asked["lite"]
    if "at" in asked:
        message.delivery_timestamp = asked["at"] // 1000
    return message


def started(asked: Asked, client: Any) -> Asked:
    client.startup()
    clients[asked["name"]] = client
    return {}


def producer(asked: Asked) -> Asked:
    checker = Checker() if asked["transactional"] else None
    made = Producer(configuration(asked), tuple(asked["topics"]), checker, asked["tls"])
    return started(asked, made)


def simple(asked: Asked) -> Asked:
    made = SimpleConsumer(
        configuration(asked),
        asked["group"],
        subscriptions(asked),
        asked["wait_s"],
        tls_enable=asked["tls"],
    )
    return started(asked, made)


def push(asked: Asked) -> Asked:
    made = PushConsumer(
        configuration(asked),
        asked["group"],
        Listener(asked["name"]),
        subscriptions(asked),
        tls_enable=asked["tls"],
    )
    return started(asked, made)


def lite(asked: Asked) -> Asked:
    made = LitePushConsumer(
        configuration(asked),
        asked["group"],
        asked["topic"],
        Listener(asked["name"]),
        tls_enable=asked["tls"],
    )
    return started(asked, made)


def lite_simple(asked: Asked) -> Asked:
    made = rocketmq.LiteSimpleConsumer(
        asked["topic"],
        configuration(asked),
        asked["group"],
        asked["wait_s"],
        tls_enable=asked["tls"],
    )
    return started(asked, made)


def subscribe(asked: Asked) -> Asked:
    # A simple consumer starts without its settings, and allows nothing until they are there.
    deadline = time.monotonic() + SETTINGS_S
    while True:
        try:
            clients[asked["name"]].subscribe_lite(asked["lite"])
            return {}
        except Exception as error:
            if "quota: 0" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def unsubscribe(asked: Asked) -> Asked:
    clients[asked["name"]].unsubscribe_lite(asked["lite"])
    return {}


def receipt_of(get: Any) -> Asked:
    try:
        receipt = get()
    except Exception as error:
        return problem(error)
    return {"id": receipt.message_id, "recall": getattr(receipt, "recall_handle", None)}


def send(asked: Asked) -> Asked:
    """All at once, if that is asked for."""
    with_client = clients[asked["name"]]
    gets = []
    for one in asked["messages"]:
        message = message_of(one)
        if asked["at_once"]:
            gets.append(with_client.send_async(message).result)
        else:
            receipt = receipt_of(lambda message=message: with_client.send(message))
            gets.append(lambda receipt=receipt: receipt)
    if asked["at_once"]:
        return {"receipts": [receipt_of(get) for get in gets]}
    return {"receipts": [get() for get in gets]}


def transact(asked: Asked) -> Asked:
    transaction = clients[asked["name"]].begin_transaction()
    receipt = clients[asked["name"]].send(message_of(asked["message"]), transaction)
    if asked["end"] != "none":
        getattr(transaction, asked["end"])()
    return {"id": receipt.message_id}


def recall(asked: Asked) -> Asked:
    return {"id": clients[asked["name"]].recall_message(asked["topic"], asked["handle"])}


def receive(asked: Asked) -> Asked:
    messages = clients[asked["name"]].receive(asked["most"], asked["invisible_s"])
    return {"messages": [shown(message) for message in messages]}


def ack(asked: Asked) -> Asked:
    clients[asked["name"]].ack(received[asked["number"]])
    return {}


def change(asked: Asked) -> Asked:
    message = received[asked["number"]]
    clients[asked["name"]].change_invisible_duration(message, asked["invisible_s"])
    return {}


def close(asked: Asked) -> Asked:
    clients.pop(asked["name"]).shutdown()
    return {}


ACTIONS = {
    action.__name__: action
    for action in (
        *(producer, simple, push, lite, lite_simple, subscribe, unsubscribe),
        *(send, transact, recall, receive, ack, change, close),
    )
}


def problem(error: Exception) -> Asked:
    code = getattr(error, "code", None)  # a method of gRPC's own errors
    return {
        "error": f"{type(error).__name__}: {error}",
        "code": code if isinstance(code, int) else None,
    }


def answer(asked: Asked) -> None:
    try:
        told = ACTIONS[asked["do"]](asked)
    except Exception as error:
        told = problem(error)
    tell({"answer": asked["answer"], **told})


def main() -> None:
    with ThreadPoolExecutor(32) as pool:
        for line in sys.stdin:
            pool.submit(answer, json.loads(line))


if __name__ == "__main__":
    main()
