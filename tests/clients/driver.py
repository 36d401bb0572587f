"""One process that does with a client of RocketMQ 5 what it is asked, a line of JSON for each.

The programs in `drivers/` know the same words in each language, so that a scenario is written once.
A question has `do`, a number `answer`, and what the word needs:

- `producer`, `simple`, `push`: start one, called `name`, with `endpoints` and `tls`, which signs by
  `user` and `secret` if there is a user. A producer has `topics`, and is `transactional`; consumers
  have a `group` and `subscriptions`, each a `topic` with a `tag` expression or `sql`. A simple
  consumer's receives wait for `wait_s`.
- `lite`: start a consumer of lite topics of a `topic`, in a `group`; `lite_simple`: one that
  receives. They `subscribe` and `unsubscribe` one, `lite`.
- `send` some `messages`, one after another or `at_once`: `receipts`, each an `id` or an `error`.
- `transact`: send a `message` and `commit`, `rollback`, or end with `none`.
- `recall` a message of a `topic` by its `handle`.
- `receive` at `most` so many, `invisible_s`; `ack` or `change` the message of a `number`.
- `close`.

The answer has the number, and an `error` with a `code` if it failed. Messages that a push consumer
gets, and those a producer is asked about, come as events. What is done with a message, its
properties say: a listener fails the first `fail` deliveries, and takes `hold` milliseconds; a check
is answered by `check`.
"""

import base64
import itertools
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from remoting.wire.signature import Credentials
from tests.clients.client_script import Failed
from tests.clients.toolchains import Installed

Told = dict[str, Any]

START_S = 40
STARTS = 3
ANSWER_S = 60


@dataclass(frozen=True)
class Receipt:
    """How a send ended: a message's id, or an error."""

    id: str
    recall: str
    error: str
    code: int | None


@dataclass(frozen=True)
class Came:
    """A message that a consumer got, and when."""

    number: int
    topic: str
    body: bytes
    tag: str
    keys: tuple[str, ...]
    properties: dict[str, str]
    group: str
    lite: str
    id: str
    attempt: int
    at_s: float

    @property
    def key(self) -> str:
        """Its first key, which no other message of a scenario has."""
        return self.keys[0] if self.keys else ""


class Refused(Failed):
    """The client says that something failed."""

    def __init__(self, text: str, code: int | None) -> None:
        super().__init__(text)
        self.code = code


class Driver:
    """A running program of `drivers/`. Threads may ask at once.

    Args:
        installed: the client.
        folder: for its errors, its logs and its HOME.
        endpoints: the proxies, "host:port;host:port".
        environment: what this program needs beside what all of the client need.
        tls: its clients speak TLS.
        user: whom they sign as.
    """

    def __init__(
        self,
        installed: Installed,
        folder: Path,
        endpoints: str,
        environment: dict[str, str] | None = None,
        *,
        tls: bool = False,
        user: Credentials | None = None,
    ) -> None:
        self._tls = tls
        signing = user or Credentials("", "")
        self._where = {
            "endpoints": endpoints,
            "user": signing.access_key,
            "secret": signing.secret_key,
        }
        home = folder / f"home-{len(list(folder.glob('home-*')))}"
        home.mkdir()
        self._errors = home / "errors"
        self._numbers = itertools.count()
        self._lock = threading.Condition()
        self._waiting: dict[int, Future[Told]] = {}
        self._came: dict[str, list[Came]] = {}
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                installed.programs["drive"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=home,
                env={
                    **os.environ,
                    **installed.environment,
                    **(environment or {}),
                    "HOME": str(home),
                },
            )
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> "Driver":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """End it at once; it is no error if it has ended before."""
        self._process.kill()
        self._process.wait()

    def begin(self, do: str, **words: object) -> Future[Told]:
        """Ask, and do not wait for the answer, which fails with `Refused`."""
        number = next(self._numbers)
        answer: Future[Told] = Future()
        with self._lock:
            self._waiting[number] = answer
            try:
                if self._process.stdin is not None:
                    self._process.stdin.write(
                        json.dumps({"do": do, "answer": number, **words}) + "\n"
                    )
                    self._process.stdin.flush()
            except OSError:
                raise Failed(f"the program has ended; see {self._errors}") from None
        return answer

    def ask(self, do: str, within_s: float = ANSWER_S, **words: object) -> Told:
        """Ask, and wait.

        Raises:
            Refused: the client says so.
            Failed: there is no answer in time.
        """
        return self.result(self.begin(do, **words), do, within_s)

    def result(self, answer: Future[Told], do: str, within_s: float = ANSWER_S) -> Told:
        """The answer to what was begun. Raises as `ask`."""
        try:
            return answer.result(within_s)
        except FutureTimeoutError:
            raise Failed(f"{do}: no answer in {within_s:g} s; see {self._errors}") from None

    def producer(self, *topics: str, transactional: bool = False, tls: bool = False) -> None:
        """Start a producer."""
        self._start(
            "producer",
            name="producer",
            tls=tls or self._tls,
            topics=topics,
            transactional=transactional,
        )

    def begin_producer(self, topic: str) -> Future[Told]:
        """Begin to start a producer, once."""
        words = {"name": "producer", "topics": [topic], "transactional": False}
        return self.begin("producer", tls=self._tls, **self._where, **words)

    def consumer(
        self,
        kind: str,
        group: str,
        topic: str,
        *,
        name: str = "",
        tls: bool = False,
        wait_s: int = 20,
        expression: Mapping[str, str] | None = None,
    ) -> None:
        """Start a consumer of a kind, "simple" or "push", called like the kind unless named."""
        self._start(
            kind,
            name=name or kind,
            tls=tls or self._tls,
            group=group,
            subscriptions=[{"topic": topic, **(expression or {})}],
            wait_s=wait_s,
        )

    def lite_consumer(self, kind: str, group: str, topic: str, *lite_topics: str) -> None:
        """Start a consumer of a kind, "lite" or "lite_simple", and subscribe to lite topics."""
        self._start(kind, name=kind, tls=self._tls, group=group, topic=topic, wait_s=5)
        for lite_topic in lite_topics:
            self.ask("subscribe", name=kind, lite=lite_topic)

    def _start(self, do: str, **words: object) -> None:
        """Start, as an application would: on a busy machine some give up within a second."""
        for left in reversed(range(STARTS)):
            try:
                self.ask(do, START_S, **self._where, **words)
                return
            except Refused:
                if not left:
                    raise
                time.sleep(1)

    def send(self, messages: Sequence[Told], *, at_once: bool = False) -> list[str]:
        """Send messages; their ids. Raises `Refused` if one fails."""
        receipts = self.receipts(messages, at_once=at_once)
        for receipt in receipts:
            if receipt.error:
                raise Refused(f"send: {receipt.error}", receipt.code)
        return [receipt.id for receipt in receipts]

    def receipts(
        self, messages: Sequence[Told], *, at_once: bool = False, within_s: float = ANSWER_S
    ) -> list[Receipt]:
        """Send messages; how each send ended."""
        words = [
            {**one, "body": base64.b64encode(cast("bytes", one["body"])).decode()}
            for one in messages
        ]
        told = self.ask("send", within_s, name="producer", messages=words, at_once=at_once)
        return [
            Receipt(
                one.get("id") or "", one.get("recall") or "", one.get("error", ""), one.get("code")
            )
            for one in told["receipts"]
        ]

    def transact(self, message: Told, end: str) -> str:
        """Send a half message, and end it or not; its id."""
        words = {**message, "body": base64.b64encode(message["body"]).decode()}
        told = self.ask("transact", name="producer", message=words, end=end)
        return str(told["id"])

    def receive(self, most: int = 16, invisible_s: int = 30, *, name: str = "simple") -> list[Came]:
        """What a simple consumer receives; nothing if nothing comes."""
        return self.received(self.begin_receive(most, invisible_s, name=name))

    def begin_receive(
        self, most: int = 16, invisible_s: int = 30, *, name: str = "simple"
    ) -> Future[Told]:
        """Begin to receive."""
        return self.begin("receive", name=name, most=most, invisible_s=invisible_s)

    def received(self, answer: Future[Told]) -> list[Came]:
        """What came of a receive that was begun."""
        told = self.result(answer, "receive")
        return [_came(one) for one in told["messages"]]

    def ack(self, came: Came, *, name: str = "simple") -> None:
        """Acknowledge a message of a simple consumer."""
        self.ask("ack", name=name, number=came.number)

    def collect(self, count: int, within_s: float, *, most: int = 16) -> list[Came]:
        """Receive and acknowledge so many messages."""
        deadline = time.monotonic() + within_s
        found: list[Came] = []
        while len(found) < count:
            if time.monotonic() > deadline:
                raise Failed(f"{len(found)} of {count} messages came in {within_s:g} s")
            for came in self.receive(most):
                self.ack(came)
                found.append(came)
        return found

    def came(self, name: str = "push") -> list[Came]:
        """What a push consumer got until now; "check": what a producer was asked about."""
        with self._lock:
            return list(self._came.get(name, ()))

    def wait_until(
        self, what: str, is_there: Callable[[list[Came]], bool], within_s: float, name: str = "push"
    ) -> list[Came]:
        """Wait for messages of a push consumer; all that it got."""
        with self._lock:
            if not self._lock.wait_for(lambda: is_there(self._came.get(name, [])), within_s):
                count = len(self._came.get(name, ()))
                raise Failed(f"{what}: not in {within_s:g} s, {count} came; see {self._errors}")
        return self.came(name)

    def wait_for(self, count: int, within_s: float, name: str = "push") -> list[Came]:
        """Wait for so many different messages; all deliveries until then."""
        return self.wait_until(
            f"{count} messages", lambda came: len({one.id for one in came}) >= count, within_s, name
        )

    def _read(self) -> None:
        if self._process.stdout is not None:
            with self._process.stdout:
                for line in self._process.stdout:
                    self._take(line)
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(Failed(f"the program has ended; see {self._errors}"))

    def _take(self, line: str) -> None:
        try:
            told = json.loads(line)
        except ValueError:  # libraries print, too
            with self._errors.open("a") as errors:
                errors.write(line)
            return
        if "answer" in told:
            answer = self._waiting.pop(told["answer"])
            if "error" in told:
                answer.set_exception(Refused(told["error"], told["code"]))
            else:
                answer.set_result(told)
            return
        name = "check" if told["event"] == "check" else told["name"]
        with self._lock:
            self._came.setdefault(name, []).append(_came(told))
            self._lock.notify_all()


def _came(told: Told) -> Came:
    if told.get("corrupted"):
        raise Failed(f"the client calls message {told['id']} corrupted")
    return Came(
        number=told.get("number", -1),
        topic=told["topic"],
        body=base64.b64decode(told["body"]),
        tag=told["tag"] or "",
        keys=tuple(told["keys"]),
        properties=told["properties"] or {},
        group=told["group"] or "",
        lite=told.get("lite") or "",
        id=told["id"],
        attempt=told["attempt"] or 0,
        at_s=time.time(),
    )
