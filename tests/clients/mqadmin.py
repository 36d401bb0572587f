"""The commands of RocketMQ's operators, run by its own `mqadmin`, with their words checked.

Its exit code is 0 whatever happens, so only the words tell.
"""

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from remoting.message.message_id import message_id
from tests.clients.client_script import Failed

if TYPE_CHECKING:
    from tests.clients.scenarios import Place
    from tests.clients.toolchains import Client

COMMAND_SECONDS = 60
UNTIL_COMMITTED_SECONDS = 30


class Expected(NamedTuple):
    """A command, and a pattern that its words must match."""

    words: str
    pattern: str


@dataclass(frozen=True)
class Operator:
    """One version of `mqadmin` at one cluster."""

    place: "Place"
    client: "Client"

    def told(self, words: Sequence[str]) -> str:
        """What a command prints."""
        installed = self.place.toolchains[self.client]
        ran = subprocess.run(
            [*installed.send, *words, "-n", self.place.cluster.names],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            cwd=self.place.folder,  # some commands leave files where they run
            timeout=COMMAND_SECONDS,
            env={"HOME": str(self.place.folder), "PATH": "/usr/bin:/bin", **installed.environment},
        )
        return ran.stdout

    def check(self, expected: Expected) -> None:
        """Run a command. Raises `Failed` when its words do not match."""
        told = self.told(expected.words.split())
        if not re.search(expected.pattern, told):
            log = self.place.folder / f"{self.client}-{expected.words.split()[0]}.out"
            log.write_text(told)
            raise Failed(f"{expected.words}: no {expected.pattern!r} in its words; see {log}")

    def until(self, expected: Expected) -> None:
        """Run a command again and again until its words match."""
        deadline = time.monotonic() + UNTIL_COMMITTED_SECONDS
        while not re.search(expected.pattern, self.told(expected.words.split())):
            if time.monotonic() > deadline:
                self.check(expected)
            time.sleep(0.5)


def administered(operator_client: "Client", client: "Client") -> "Callable[[Place], None]":
    """An operator looks at a topic while it is used, moves its group, and removes it."""

    def run(place: "Place") -> None:
        operator, topic, group = (
            Operator(place, operator_client),
            place.topic,
            f"{place.topic}-readers",
        )
        place.send(client, "sync", "--count", "20")
        with (
            place.consuming(client, "--steady") as reader,
            place.sending(client, "steady", "--pause", "0.2"),
        ):
            reader.wait_until_ready()
            for words, pattern in (
                ("clusterList", r"DefaultCluster\s+\S+\s+0\s+\d+\.\d+\.\d+\.\d+:\d+"),
                (f"topicRoute -t {topic}", r'"?brokerName"?\s*:\s*"'),
                (f"topicStatus -t {topic}", r"#Max Offset"),
                (f"producerConnection -g {topic}-senders -t {topic}", r"127\.0\.0\.1:\d+.*JAVA"),
                (f"consumerConnection -g {group}", r"JAVA(?s:.)*CLUSTERING"),
                (f"consumerStatus -g {group}", r"Rebalance OK"),
                (
                    "brokerStatus -c DefaultCluster",
                    r"msgGetTotalTodayNow\s*:\s*[1-9](?s:.*)putTps\s*:\s*[\d.]+ [\d.]*[1-9]",
                ),
                (f"statsAll -t {topic}", rf"(?m)^{topic}\s+{group}\s+\d+\s+\d+\.\d+"),
            ):
                operator.until(Expected(words, pattern))
            operator.until(Expected(f"consumerProgress -g {group}", r"Consume TPS"))
        look_for_a_message(operator, topic)
        for words, pattern in (
            (f"skipAccumulatedMessage -g {group} -t {topic} -f true", rf"{topic}|brokerName"),
            (f"resetOffsetByTime -g {group} -t {topic} -s 0 -f true", r"#queueId|#offset"),
            (
                f"cloneGroupOffset -s {group} -d {group}-too -t {topic} -o true",
                r"clone group offset",
            ),
            (f"deleteTopic -c DefaultCluster -t {topic}", r"delete topic \[.*\] from cluster"),
        ):
            operator.check(Expected(words, pattern))

    return run


def look_for_a_message(operator: Operator, topic: str) -> None:
    """By its key, by its unique key, by its place in the log, and by its place in its queue."""
    by_key = f"queryMsgByKey -t {topic} -k {topic}-7"
    row = r"(?m)^([0-9A-F]{32,56})\s+(\d+)\s+(\d+)\s*$"
    operator.check(Expected(by_key, row))
    unique, queue, offset = re.findall(row, operator.told(by_key.split()))[0]
    by_unique_key = f"queryMsgByUniqueKey -t {topic} -i {unique}"
    is_it = rf"Keys:\s+\[{topic}-7\]"
    operator.check(Expected(by_unique_key, is_it))
    place = re.search(
        r"CommitLog Offset:\s+(\d+)(?s:.*)Store Host:\s+([\d.]+):(\d+)",
        operator.told(by_unique_key.split()),
    )
    if place is None:
        raise Failed(f"{by_unique_key}: no place")
    offset_id = message_id(place[2], int(place[3]), int(place[1]))
    of_topic = "" if operator.client == "admin4" else f"-t {topic} "
    operator.check(Expected(f"queryMsgById {of_topic}-i {offset_id}", is_it))
    routed = operator.told(["topicRoute", "-t", topic])
    broker = re.search(r'"?brokerName"?\s*:\s*"([^"]+)', routed)
    if broker is None:
        raise Failed("topicRoute: no broker")
    by_offset = f"queryMsgByOffset -t {topic} -b {broker[1]} -i {queue} -o {offset}"
    operator.check(Expected(by_offset, is_it))
