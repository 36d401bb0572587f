"""Send keyed messages with the C++ client (PyPI `rocketmq`); exit 0 if every send succeeded.

"steady" sends one message after the other until the process is killed, each until it is
acknowledged, and prints "acked KEY MILLISECONDS" or "failed KEY MILLISECONDS REASON" for each
attempt. Runs in a virtual environment of its own, so it may use nothing of this project.
"""

import argparse
import itertools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from rocketmq.client import Message, Producer  # type: ignore[import-not-found,unused-ignore]

ASYNC_S = 30
PAUSE_AFTER_FAILURE_S = 0.1


def main() -> int:
    options = read_options()
    # By default it refuses messages of more than 128 KiB.
    largest = max(options.size, 131_072)
    producer = Producer(f"{options.run}-senders", timeout=3000, max_message_size=largest)
    producer.set_namesrv_addr(options.names)
    if options.credentials:
        producer.set_session_credentials(*options.credentials.split(":"), "ALIYUN")
    producer.start()
    if options.mode == "steady":
        send_steadily(producer, options)
    messages = [make(options, number) for number in range(options.count)]
    failed = MODES[options.mode](producer, messages, options)
    if options.mode == "oneway":
        time.sleep(1)  # nothing tells when the last one has left
    producer.shutdown()
    print(f"{options.count - failed} of {options.count} sent")
    return 1 if failed else 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("names")
    parser.add_argument("topic")
    parser.add_argument("run", help="every key begins with it")
    parser.add_argument("mode", choices=[*MODES, "steady"])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--size", type=int, default=0, help="pad bodies to so many bytes")
    parser.add_argument("--tags", default="red", help="in turn, separated by commas")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between messages")
    parser.add_argument("--delay-level", type=int, default=0)
    parser.add_argument("--tries", type=int, default=1, help="of the application, a second apart")
    parser.add_argument("--credentials", help="sign by them, USER:SECRET")
    return parser.parse_args()


def make(options: argparse.Namespace, number: int) -> Any:
    key = f"{options.run}-{number}"
    tags = options.tags.split(",")
    message = Message(options.topic)
    message.set_keys(key)
    message.set_tags(tags[number % len(tags)])
    message.set_body(key.ljust(options.size, "."))
    if options.delay_level:
        message.set_delay_time_level(options.delay_level)
    return message


def one_by_one(
    messages: list[Any], options: argparse.Namespace, send: Callable[[Any, int], object]
) -> int:
    """Send each message, again after a failure; how many failed for good."""
    failed = 0
    for number, message in enumerate(messages):
        for attempt in range(options.tries):
            try:
                send(message, number)
                break
            except Exception as error:
                print(f"message {number}, attempt {attempt}: {error}", flush=True)
                time.sleep(1)
        else:
            failed += 1
        time.sleep(options.pause)
    return failed


def send_sync(producer: Any, messages: list[Any], options: argparse.Namespace) -> int:
    return one_by_one(messages, options, lambda message, _: producer.send_sync(message))


def send_oneway(producer: Any, messages: list[Any], options: argparse.Namespace) -> int:
    return one_by_one(messages, options, lambda message, _: producer.send_oneway(message))


def send_orderly(producer: Any, messages: list[Any], options: argparse.Namespace) -> int:
    return one_by_one(
        messages, options, lambda message, number: producer.send_orderly(message, number % 2)
    )


def send_batch(producer: Any, messages: list[Any], options: argparse.Namespace) -> int:
    producer.send_batch(messages)
    return 0


def send_async(producer: Any, messages: list[Any], options: argparse.Namespace) -> int:
    ended = threading.Semaphore(0)
    problems: list[object] = []

    def failed(error: object) -> None:
        problems.append(error)
        ended.release()

    for message in messages:
        producer.send_async(message, lambda _result: ended.release(), failed)
    deadline = time.monotonic() + ASYNC_S
    missing = 0
    for _ in messages:
        if not ended.acquire(timeout=max(deadline - time.monotonic(), 0)):
            missing += 1
    for problem in problems:
        print(problem)
    return missing + len(problems)


def send_steadily(producer: Any, options: argparse.Namespace) -> NoReturn:
    for number in itertools.count():
        message = make(options, number)
        key = f"{options.run}-{number}"
        while True:
            try:
                producer.send_sync(message)
            except Exception as error:
                print(f"failed {key} {time.time() * 1000:.0f} {error}", flush=True)
                time.sleep(PAUSE_AFTER_FAILURE_S)
            else:
                print(f"acked {key} {time.time() * 1000:.0f}", flush=True)
                break
        time.sleep(options.pause)
    raise AssertionError("the numbers never end")


MODES: dict[str, Callable[[Any, list[Any], argparse.Namespace], int]] = {
    "sync": send_sync,
    "async": send_async,
    "oneway": send_oneway,
    "orderly": send_orderly,
    "batch": send_batch,
}

if __name__ == "__main__":
    sys.exit(main())
