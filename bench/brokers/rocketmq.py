"""RocketMQ's own brokers in DLedger mode, and its own client as the load for all brokers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from bench.brokers.group import NAMESERVER, Addresses, Brokers, Program
from bench.one_run import RunFailed, last_complaint
from bench.place import member_ids
from bench.toolchain import ROCKETMQ, Toolchain
from dledger.free_ports import free_addresses, free_ports

SERVER_VERSION, CLIENT_VERSION = "4.9.7", "4.9.8"

_GROUP = "bench"
_PACKAGE = "org.apache.rocketmq"

# RocketMQ's servers use packages that Java hides from 16 on.
_OPENS = [
    *(f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in ("java.nio", "java.lang")),
    *(f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in ("sun.nio.ch", "jdk.internal.ref")),
    *(f"--add-exports=java.base/{each}=ALL-UNNAMED" for each in ("sun.nio.ch", "jdk.internal.ref")),
]
_NAMESERVER_MEMORY = ["-Xms128m", "-Xmx256m"]
_BROKER_MEMORY = ["-Xms512m", "-Xmx1g", "-Xmn256m", "-XX:MaxDirectMemorySize=1g"]
_LOAD_MEMORY = ["-Xms512m", "-Xmx1500m"]

# Without these files its servers do not start.
_LOG_SETTINGS = '<configuration><root level="OFF"/></configuration>\n'


class Load:
    """The load program. `run` raises RunFailed."""

    def __init__(self, command: list[str]) -> None:
        self._command = command

    def run(
        self, work: str, nameserver: str, folder: Path, within_s: float, **options: object
    ) -> dict[str, float]:
        """Run a task of the load program; return its figures."""
        given = [f"{name}={value}" for name, value in options.items()]
        command = [*self._command, work, f"nameserver={nameserver}", *given]
        complaints = folder / "load-complaints"
        with complaints.open("wb") as errors:
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    timeout=within_s,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                said = last_complaint(complaints)
                raise RunFailed(f"{work} took more than {within_s:g} s{said}") from None
        lines = [line for line in done.stdout.splitlines() if line.startswith(b"{")]
        if done.returncode or not lines:
            raise RunFailed(f"{work} has measured nothing{last_complaint(complaints)}")
        found: dict[str, Any] = json.loads(lines[-1])
        if found.get("failed"):
            said = last_complaint(complaints)
            raise RunFailed(f"{work}: {found['failed']:.0f} have failed{said}")
        return found


def load_program(toolchain: Toolchain, folder: Path) -> Load:
    """Raises Unavailable."""
    class_path = toolchain.class_path(ROCKETMQ / "client", "RocketMQ's client")
    java = toolchain.find("java", "install a JDK, 11 or later")
    settings = ["-Drocketmq.client.logLevel=ERROR", f"-Drocketmq.client.logRoot={folder}"]
    return Load([java, *_LOAD_MEMORY, *settings, "-cp", class_path, "Load"])


def rocketmq(toolchain: Toolchain) -> Brokers:
    """Build RocketMQ's brokers. Raises Unavailable."""
    class_path = toolchain.class_path(ROCKETMQ / "server", "RocketMQ")
    preloaded = toolchain.shared_library(ROCKETMQ / "loopback" / "loopback.c")
    java = toolchain.find("java", "install a JDK, 11 or later")

    def programs(at: Addresses) -> dict[str, Program]:
        home = at.folder / "home"
        (home / "conf").mkdir(parents=True)
        for name in ("namesrv", "broker"):
            (home / "conf" / f"logback_{name}.xml").write_text(_LOG_SETTINGS)
        environment = {"LD_PRELOAD": str(preloaded), "ROCKETMQ_HOME": str(home)}

        def program(name: str, memory: list[str], main: str, settings: dict[str, str]) -> Program:
            path = at.folder / f"{name}.conf"
            path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            own = [f"-Duser.home={at.folder / name}", "-Djava.net.preferIPv4Stack=true"]
            command = [java, *memory, *_OPENS, *own, "-cp", class_path, f"{_PACKAGE}.{main}"]
            return Program([*command, "-c", str(path)], environment)

        port = {"listenPort": at.nameserver.rpartition(":")[2]}
        found = {
            NAMESERVER: program(NAMESERVER, _NAMESERVER_MEMORY, "namesrv.NamesrvStartup", port)
        }
        for name in at.members:
            settings = _broker_settings(at, name)
            found[name] = program(name, _BROKER_MEMORY, "broker.BrokerStartup", settings)
        return found

    return Brokers(
        "java", f"RocketMQ {SERVER_VERSION}", f"RocketMQ {SERVER_VERSION}", _addresses, programs
    )


def _broker_settings(at: Addresses, name: str) -> dict[str, str]:
    peers = [f"{each}-{address}" for each, address in at.inner.items()]
    folder = at.folder / name
    return {
        "brokerClusterName": _GROUP,
        "brokerName": _GROUP,
        "brokerIP1": "127.0.0.1",
        "listenPort": at.members[name].rpartition(":")[2],
        "namesrvAddr": at.nameserver,
        "storePathRootDir": str(folder),
        "storePathCommitLog": str(folder / "commitlog"),
        "enableDLegerCommitLog": "true",
        "dLegerGroup": _GROUP,
        "dLegerPeers": ";".join(peers),
        "dLegerSelfId": name,
        "mappedFileSizeCommitLog": str(64 * 1024 * 1024),  # as our segments
        "sendMessageThreadPoolNums": "4",
        "diskMaxUsedSpaceRatio": "95",
        "autoCreateTopicEnable": "true",
    }


def _addresses(folder: Path) -> Addresses:
    ids = member_ids()
    nameserver, *inner = free_addresses(1 + len(ids))
    members = {name: f"127.0.0.1:{_spacious_port()}" for name in ids}
    return Addresses(folder, nameserver, members, dict(zip(ids, inner, strict=True)))


def _spacious_port() -> int:
    """RocketMQ's brokers also listen two ports below their own, and one above."""
    while True:
        ports = free_ports(4)
        if ports[-1] - ports[0] == len(ports) - 1:
            return ports[2]
