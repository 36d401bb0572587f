"""Consume with the C++ client (PyPI `rocketmq`); exit 0 once so many keys of the run have come.

Prints "ready" when it has started, then one key a line; "again KEY" for a key that came before.
With --steady it goes on until it is killed, and prints "took KEY MILLISECONDS QUEUE/OFFSET" for
each message. Runs in a virtual environment of its own.
"""

import argparse
import sys
import threading
import time
from typing import Any

from rocketmq.client import (  # type: ignore[import-not-found,unused-ignore]
    MessageModel,
    PullConsumer,
    PushConsumer,
    RecvMessage,
    dll,
)

CONSUMED = 0
AGAIN = 1


def main() -> int:
    options = read_options()
    return pull(options) if options.pull else push(options)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("names")
    parser.add_argument("topic")
    parser.add_argument("group")
    parser.add_argument("run", help="only keys that begin with it count")
    parser.add_argument("--expect", type=int, default=20)
    parser.add_argument("--tags", default="*")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--fail-first", type=int, default=0)
    parser.add_argument("--broadcast", action="store_true")
    parser.add_argument("--orderly", action="store_true")
    parser.add_argument("--pull", action="store_true")
    parser.add_argument("--steady", action="store_true")
    parser.add_argument("--credentials", help="sign by them, USER:SECRET")
    return parser.parse_args()


def key_of(message: Any) -> str:
    return (message.keys or b"").decode()


def prepare(consumer: Any, options: argparse.Namespace) -> None:
    consumer.set_namesrv_addr(options.names)
    if options.credentials:
        consumer.set_session_credentials(*options.credentials.split(":"), "ALIYUN")


def pull(options: argparse.Namespace) -> int:
    consumer = PullConsumer(options.group)
    prepare(consumer, options)
    consumer.start()
    print("ready", flush=True)
    keys: set[str] = set()
    for message in consumer.pull(options.topic, options.tags, 32):
        key = key_of(message)
        if key.startswith(f"{options.run}-"):
            print(f"again {key}" if key in keys else key)
            keys.add(key)
    consumer.shutdown()
    print(f"{len(keys)} of {options.expect} keys")
    return 0 if len(keys) == options.expect else 2


def push(options: argparse.Namespace) -> int:
    consumer = PushConsumer(
        options.group,
        orderly=options.orderly,
        message_model=MessageModel.BROADCASTING if options.broadcast else MessageModel.CLUSTERING,
    )
    prepare(consumer, options)
    lock = threading.Lock()
    keys: set[str] = set()
    enough = threading.Event()
    to_fail = options.fail_first

    def on_message(_consumer: object, handle: object) -> int:
        # The package's own `subscribe` can ask for a repeat only by raising in a callback of C,
        # whose result is then undefined; so the status is returned here.
        nonlocal to_fail
        message = RecvMessage(handle)
        key = key_of(message)
        with lock:
            if options.steady:
                place = f"{message.queue_id}/{message.queue_offset}"
                print(f"took {key} {time.time() * 1000:.0f} {place}", flush=True)
                return CONSUMED
            if to_fail:
                to_fail -= 1
                print(f"failing {key}", flush=True)
                return AGAIN
            if key.startswith(f"{options.run}-"):
                print(f"again {key}" if key in keys else key, flush=True)
                keys.add(key)
            if len(keys) >= options.expect:
                enough.set()
        return CONSUMED

    dll.Subscribe(consumer._handle, options.topic.encode(), options.tags.encode())
    consumer._register_callback(on_message)
    consumer.start()
    print("ready", flush=True)
    if options.steady:
        threading.Event().wait()
    met = enough.wait(options.seconds)
    time.sleep(0.3)  # what comes too much would come now
    consumer.shutdown()
    print(f"{len(keys)} of {options.expect} keys")
    return 0 if met and len(keys) == options.expect else 2


if __name__ == "__main__":
    sys.exit(main())
