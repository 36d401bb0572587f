"""What clients written by others must be able to do."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.clients.client_script import ClientScript
from tests.clients.local_cluster import LocalCluster
from tests.clients.toolchains import Toolchains

Client = Literal["cpp", "ali"]

SEND_SECONDS = 60
CONSUME_SECONDS = 90

# The C++ client looks for a retry topic at its next poll of routes, and both clients learn a new
# leader's address only then: each 30 seconds.
FAILOVER_SECONDS = 150

EXTENSIONS = {"cpp": "py", "ali": "js"}


@dataclass(frozen=True)
class Place:
    """What a scenario runs on.

    Attributes:
        cluster: the brokers.
        toolchains: the clients.
        folder: for its files.
        topic: a topic of its own.
    """

    cluster: LocalCluster
    toolchains: Toolchains
    folder: Path
    topic: str

    def script(self, name: str, *arguments: str) -> ClientScript:
        """Start a script."""
        return ClientScript(self.toolchains, self.folder, name, *arguments)

    def send(self, client: Client, *arguments: str) -> None:
        """Send the messages of the run to their end."""
        with self.sending(client, *arguments) as script:
            script.succeed(SEND_SECONDS)

    def sending(self, client: Client, *arguments: str) -> ClientScript:
        """Begin to send."""
        mode = list(arguments)
        if client == "cpp" and (not mode or mode[0].startswith("--")):
            mode.insert(0, "sync")
        return self.script(
            f"{client}_send.{EXTENSIONS[client]}", self.cluster.names, self.topic, self.topic, *mode
        )

    def consuming(self, client: Client, *arguments: str) -> ClientScript:
        """Begin to consume, in the group of the run."""
        return self.script(
            f"{client}_consume.{EXTENSIONS[client]}",
            self.cluster.names,
            self.topic,
            f"{self.topic}-readers",
            self.topic,
            *arguments,
        )


@dataclass(frozen=True)
class Scenario:
    """One thing that must work.

    Attributes:
        name: what it is.
        clients: who takes part.
        run: does it; raises `Failed`.
        breaks_things: others must not run at the same time.
    """

    name: str
    clients: tuple[Client, ...]
    run: Callable[[Place], None]
    breaks_things: bool = False


def sent_and_pulled(*arguments: str) -> Callable[[Place], None]:
    """The C++ client sends in a mode, and its pull consumer finds every message."""

    def run(place: Place) -> None:
        place.send("cpp", *arguments)
        with place.consuming("cpp", "--pull") as puller:
            puller.succeed(CONSUME_SECONDS)

    return run


def sent_and_pushed(
    sender: Client, reader: Client, *, sending: tuple[str, ...] = (), reading: tuple[str, ...] = ()
) -> Callable[[Place], None]:
    """One client sends while the other's push consumer runs, which gets every message."""

    def run(place: Place) -> None:
        with place.consuming(reader, *reading) as script:
            script.wait_until_ready()
            place.send(sender, *sending)
            script.succeed(CONSUME_SECONDS)

    return run


def broadcast(client: Client) -> Callable[[Place], None]:
    """Two broadcasting consumers of one group each get every message."""

    def run(place: Place) -> None:
        with (
            place.consuming(client, "--broadcast") as first,
            place.consuming(client, "--broadcast") as second,
        ):
            first.wait_until_ready()
            second.wait_until_ready()
            time.sleep(1)  # "ready" is said before the first offset of a queue is asked for
            place.send(client)
            first.succeed(CONSUME_SECONDS)
            second.succeed(CONSUME_SECONDS)

    return run


def leader_killed(client: Client) -> Callable[[Place], None]:
    """The leader's process is killed while messages flow; every key is sent and received."""

    def run(place: Place) -> None:
        expected = ("--expect", "60", "--seconds", str(FAILOVER_SECONDS))
        with place.consuming(client, *expected) as reader:
            reader.wait_until_ready()
            with place.sending("cpp", "--count", "60", "--pause", "0.1", "--tries", "90") as sender:
                time.sleep(2)
                place.cluster.kill_leader()
                sender.succeed(FAILOVER_SECONDS)
            reader.succeed(FAILOVER_SECONDS)

    return run


MIXED = ("--count", "21", "--tags", "red,green,blue")
TWO_OF_THREE = ("--expect", "14", "--tags", "red || blue")
LONG = ("--size", "5000")

SCENARIOS = (
    Scenario("C++ sends one by one", ("cpp",), sent_and_pulled("sync")),
    Scenario("C++ sends asynchronously", ("cpp",), sent_and_pulled("async")),
    Scenario("C++ sends oneway", ("cpp",), sent_and_pulled("oneway")),
    Scenario("C++ sends in order", ("cpp",), sent_and_pulled("orderly")),
    Scenario("C++ sends a batch", ("cpp",), sent_and_pulled("batch")),
    Scenario("C++ sends 5 KB, compressed", ("cpp",), sent_and_pulled("sync", *LONG)),
    Scenario(
        "C++ consumes two tags of three",
        ("cpp",),
        sent_and_pushed("cpp", "cpp", sending=MIXED, reading=TWO_OF_THREE),
    ),
    Scenario(
        "C++ consumes in order", ("cpp",), sent_and_pushed("cpp", "cpp", reading=("--orderly",))
    ),
    Scenario(
        "C++ fails, and gets 5 KB again",
        ("cpp",),
        sent_and_pushed("cpp", "cpp", sending=LONG, reading=("--fail-first", "2")),
    ),
    Scenario("C++ broadcasts", ("cpp",), broadcast("cpp")),
    Scenario("ali-ons sends and consumes", ("ali",), sent_and_pushed("ali", "ali")),
    Scenario(
        "ali-ons sends 200, 32 at once",
        ("ali",),
        sent_and_pushed(
            "ali",
            "ali",
            sending=("--count", "200", "--inflight", "32"),
            reading=("--expect", "200"),
        ),
    ),
    Scenario(
        "ali-ons consumes two tags of three",
        ("ali",),
        sent_and_pushed("ali", "ali", sending=MIXED, reading=TWO_OF_THREE),
    ),
    Scenario(
        # Once only: this client forgets a message whose repeat fails again.
        "ali-ons fails, and gets 5 KB again",
        ("ali",),
        sent_and_pushed("ali", "ali", sending=LONG, reading=("--fail-first", "1")),
    ),
    Scenario("ali-ons broadcasts", ("ali",), broadcast("ali")),
    Scenario(
        "C++ sends 5 KB to ali-ons", ("cpp", "ali"), sent_and_pushed("cpp", "ali", sending=LONG)
    ),
    Scenario(
        "ali-ons sends 5 KB to C++", ("cpp", "ali"), sent_and_pushed("ali", "cpp", sending=LONG)
    ),
    Scenario("C++ lives through a leader's death", ("cpp",), leader_killed("cpp"), True),
    Scenario("ali-ons lives through a leader's death", ("cpp", "ali"), leader_killed("ali"), True),
)
