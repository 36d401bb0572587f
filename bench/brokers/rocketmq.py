"""RocketMQ's own brokers in DLedger mode, and its own client as the load for all brokers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.brokers.group import NAMESERVER, PROXY, Addresses, Brokers, Program
from bench.one_run import RunFailed, last_complaint
from bench.place import member_ids
from bench.toolchain import ROCKETMQ, Toolchain
from dledger.free_ports import free_addresses, free_ports

SERVER_VERSION = "4.9.7"
PROXY_VERSION, PYTHON_CLIENT_VERSION = "5.3.3", "5.1.2"

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
_PROXY_MEMORY = ["-Xms512m", "-Xmx1g"]
_LOAD_MEMORY = ["-Xms512m", "-Xmx1500m"]

_COMPLAINTS = "load-complaints"

# Without these files its servers do not start.
_LOGGED = (
    *("logback_namesrv.xml", "logback_broker.xml"),
    *("rmq.namesrv.logback.xml", "rmq.broker.logback.xml", "rmq.proxy.logback.xml"),
)
_LOG_SETTINGS = '<configuration><root level="OFF"/></configuration>\n'


class Load:
    """The load program. `run` raises RunFailed."""

    def __init__(self, command: list[str], environment: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._environment = {**os.environ, **(environment or {})}

    def run(
        self, work: str, nameserver: str, folder: Path, within_s: float, **options: object
    ) -> dict[str, float]:
        """Run a task of the load program, in which nothing fails; return its figures."""
        found = self.run_anyhow(work, nameserver, folder, within_s, **options)
        if found.get("failed"):
            said = last_complaint(folder / _COMPLAINTS)
            raise RunFailed(f"{work}: {found['failed']:.0f} have failed{said}")
        return found

    def run_anyhow(
        self, work: str, nameserver: str, folder: Path, within_s: float, **options: object
    ) -> dict[str, float]:
        """Run a task of the load program, of which parts may fail; return its figures."""
        given = [f"{name}={value}" for name, value in options.items()]
        command = [*self._command, work, f"nameserver={nameserver}", *given]
        complaints = folder / _COMPLAINTS
        with complaints.open("wb") as errors:
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    timeout=within_s,
                    check=False,
                    env=self._environment,
                )
            except subprocess.TimeoutExpired:
                said = last_complaint(complaints)
                raise RunFailed(f"{work} took more than {within_s:g} s{said}") from None
        lines = [line for line in done.stdout.splitlines() if line.startswith(b"{")]
        if done.returncode or not lines:
            raise RunFailed(f"{work} has measured nothing{last_complaint(complaints)}")
        found: dict[str, Any] = json.loads(lines[-1])
        return found


def load_program(toolchain: Toolchain, folder: Path) -> Load:
    """Raises Unavailable."""
    class_path = toolchain.class_path(ROCKETMQ / "client", "RocketMQ's client")
    java = toolchain.find("java", "install a JDK, 11 or later")
    settings = ["-Drocketmq.client.logLevel=ERROR", f"-Drocketmq.client.logRoot={folder}"]
    return Load([java, *_LOAD_MEMORY, *settings, "-cp", class_path, "Load"])


def grpc_loads(toolchain: Toolchain, folder: Path) -> dict[str, Load]:
    """Return the load programs with RocketMQ 5's clients, by language. Raises Unavailable."""
    class_path = toolchain.class_path(ROCKETMQ / "client5", "RocketMQ's client of gRPC")
    java = toolchain.find("java", "install a JDK, 11 or later")
    settings = [f"-Drocketmq.log.root={folder}", f"-Duser.home={folder}"]
    python = toolchain.python_with("rocketmq-python-client", PYTHON_CLIENT_VERSION)
    return {
        "Java": Load([java, *_LOAD_MEMORY, *settings, "-cp", class_path, "Load5"]),
        # Without -P, this module would be its `rocketmq`.
        "Python": Load(
            [python, "-P", str(Path(__file__).with_name("grpc_load.py"))], {"HOME": str(folder)}
        ),
    }


def rocketmq(toolchain: Toolchain) -> Brokers:
    """Build RocketMQ's brokers. Raises Unavailable."""
    programs = _programs(toolchain, "server")
    version = f"RocketMQ {SERVER_VERSION}"
    return Brokers("java", version, version, _addresses, programs)


def rocketmq_by_proxy(toolchain: Toolchain) -> Brokers:
    """Build RocketMQ's proxy in cluster mode, and brokers of its version. Raises Unavailable."""
    programs = _programs(toolchain, "server5")
    version = f"RocketMQ {PROXY_VERSION}"
    name = f"{version}, proxy"
    return Brokers(
        *("java5", name, version, _addresses, programs),
        is_behind_proxy=True,
        # Its proxy gives up if brokers take three seconds to make it.
        proxy_topics=("DefaultHeartBeatSyncerTopic",),
    )


def _programs(toolchain: Toolchain, sources: str) -> Callable[[Addresses], dict[str, Program]]:
    class_path = toolchain.class_path(ROCKETMQ / sources, "RocketMQ")
    preloaded = toolchain.shared_library(ROCKETMQ / "loopback" / "loopback.c")
    java = toolchain.find("java", "install a JDK, 11 or later")

    def programs(at: Addresses) -> dict[str, Program]:
        home = at.folder / "home"
        (home / "conf").mkdir(parents=True)
        for name in _LOGGED:
            (home / "conf" / name).write_text(_LOG_SETTINGS)
        environment = {"LD_PRELOAD": str(preloaded), "ROCKETMQ_HOME": str(home)}

        def program(name: str, memory: list[str], main: str, *options: str) -> Program:
            own = [f"-Duser.home={at.folder / name}", "-Djava.net.preferIPv4Stack=true"]
            command = [java, *memory, *_OPENS, *own, "-cp", class_path, f"{_PACKAGE}.{main}"]
            return Program([*command, *options], environment)

        def options(name: str, settings: dict[str, str]) -> tuple[str, str]:
            path = at.folder / f"{name}.conf"
            path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            return "-c", str(path)

        port = {"listenPort": at.nameserver.rpartition(":")[2]}
        given = options(NAMESERVER, port)
        found = {
            NAMESERVER: program(NAMESERVER, _NAMESERVER_MEMORY, "namesrv.NamesrvStartup", *given)
        }
        for name in at.members:
            given = options(name, _broker_settings(at, name))
            found[name] = program(name, _BROKER_MEMORY, "broker.BrokerStartup", *given)
        path = at.folder / "proxy.json"
        path.write_text(json.dumps(_proxy_settings(at)))
        mode = ("-pm", "CLUSTER", "-pc", str(path))
        found[PROXY] = program(PROXY, _PROXY_MEMORY, "proxy.ProxyStartup", *mode)
        return found

    return programs


def _proxy_settings(at: Addresses) -> dict[str, object]:
    return {
        "rocketMQClusterName": _GROUP,
        "namesrvAddr": at.nameserver,
        "grpcServerPort": int(at.proxy.rpartition(":")[2]),
        "remotingListenPort": int(free_addresses(1)[0].rpartition(":")[2]),
    }


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
    nameserver, proxy, *inner = free_addresses(2 + len(ids))
    members = {name: f"127.0.0.1:{_spacious_port()}" for name in ids}
    return Addresses(folder, nameserver, members, dict(zip(ids, inner, strict=True)), proxy)


def _spacious_port() -> int:
    """RocketMQ's brokers also listen two ports below their own, and one above."""
    while True:
        ports = free_ports(4)
        if ports[-1] - ports[0] == len(ports) - 1:
            return ports[2]
