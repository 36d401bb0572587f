"""One client of C++ in a separate process: its crash is noticed and ends no other client.

`python -m jepsen_like.chaos.brokers.cpp produce|consume NAME_SERVER TOPIC GROUP`. It reads lines of
JSON on its standard input and writes others on its output; docs/chaos.md explains its outcomes. It
ends at once when its input does.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Final, Literal

from rocketmq import client as cpp  # type: ignore[import-not-found,unused-ignore]
from rocketmq import exceptions  # type: ignore[import-not-found,unused-ignore]

from jepsen_like.chaos.orders import say, take_output

SEND_TIMEOUT_MS: Final = 3_000
START_PAUSE_S: Final = 0.5
# The answers of callbacks of the library.
CONSUMED, AGAIN = 0, 1

# The library has one error for all failures of a send, whatever the broker said.
_BEFORE_SENDING: Final = (exceptions.NullPointerException, exceptions.MallocFailed)
_NOT_YET: Final = (exceptions.ProducerStartFailed, exceptions.PushConsumerStartFailed)

Outcome = Literal["ok", "fail", "unknown"]


def produce(nameserver: str, topic: str, group: str) -> None:
    """Send each body that is read, and write its outcome."""
    producer = cpp.Producer(group, timeout=SEND_TIMEOUT_MS)
    producer.set_namesrv_addr(nameserver)
    _start(producer)
    say(ready=True)
    for said in _told():
        outcome, error = _send(producer, topic, said["send"])
        say(outcome=outcome, error=error)


def _send(producer: Any, topic: str, body: str) -> tuple[Outcome, str]:
    try:
        message = cpp.Message(topic)
        message.set_keys(body)
        message.set_body(body)
        status = producer.send_sync(message).status
    except _BEFORE_SENDING as error:
        return "fail", f"{type(error).__name__}: {error}"
    except exceptions.RocketMQException as error:
        return "unknown", f"{type(error).__name__}: {error}"
    # The other statuses say that the message is stored, maybe on too few disks.
    return ("ok", "") if status is cpp.SendStatus.OK else ("unknown", status.name)


def consume(nameserver: str, topic: str, group: str) -> None:
    """Write each message, and have it consumed once it is noted; leave the group when told to."""
    consumer = cpp.PushConsumer(group)
    consumer.set_namesrv_addr(nameserver)
    leaves = threading.Event()
    noted: queue.SimpleQueue[bool] = queue.SimpleQueue()
    one_by_one = threading.Lock()

    def on_message(_: object, handle: object) -> int:
        # `subscribe` of the package asks for a repeat by raising in a callback of C, whose result
        # is then undefined: the status is returned here.
        with one_by_one:
            say(took=cpp.RecvMessage(handle).body.decode())
            return CONSUMED if noted.get() else AGAIN

    def hear() -> None:
        for said in _told():
            if said.get("leave"):
                leaves.set()
            else:
                noted.put(said["noted"])
        os._exit(0)

    cpp.dll.Subscribe(consumer._handle, topic.encode(), b"*")
    consumer._register_callback(on_message)
    threading.Thread(target=hear, daemon=True).start()
    say(ready=True)  # before the first message
    _start(consumer)
    leaves.wait()
    consumer.shutdown()


def _start(client: Any) -> None:
    """Start a client, again and again while that fails: a name server may be away."""
    while True:
        try:
            client.start()
            return
        except _NOT_YET as error:
            print(f"cannot start yet: {error}", file=sys.stderr, flush=True)
            time.sleep(START_PAUSE_S)


def _told() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def main() -> None:
    role, nameserver, topic, group = sys.argv[1:]
    take_output()  # the library prints
    {"produce": produce, "consume": consume}[role](nameserver, topic, group)
    # Its destructors wait for threads that may wait for a broker.
    os._exit(0)


if __name__ == "__main__":
    main()
