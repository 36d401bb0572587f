"""The units, images, manifests and files of settings in `deploy` fit the programs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from broker.broker_command import broker, checked_config
from dledger.command_line.option_sources import options_of
from dledger.free_ports import free_addresses
from nameserver.nameserver_command import main as nameserver
from tests.broker.serving.test_broker_config_file import running

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVERS = {"broker": broker, "nameserver": nameserver}
# Those that the files use, and no others.
PROBES = {"/healthz", "/readyz"}
ROOM_TO_END_S = 40  # 5 s, and 30 s for a slow disk


def units() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((DEPLOY / "systemd").iterdir())}


def value_in(unit: str, key: str) -> str:
    (found,) = re.findall(rf"^{key}=(.*)$", unit, re.M)
    return str(found)


def test_the_units_start_reload_watch_and_end_the_servers() -> None:
    assert set(units()) == {"dledger-broker.service", "dledger-nameserver.service"}
    for name, unit in units().items():
        server = name.removeprefix("dledger-").removesuffix(".service")
        assert value_in(unit, "Type") == "notify"
        assert value_in(unit, "ExecReload") == "/bin/kill -HUP $MAINPID"
        _python, *words = value_in(unit, "ExecStart").split()
        assert words[:2] == ["-m", server]
        assert words[2:] == ["--config", f"/etc/dledger/{server}.toml"]
        assert int(value_in(unit, "WatchdogSec")) >= 10
        for hardened in ("NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes"):
            assert f"{hardened}\n" in unit
        folder = value_in(unit, "StateDirectory").split()[0]
        assert f'"/var/lib/{folder}' in (DEPLOY / f"{server}.toml").read_text()
    assert int(value_in(units()["dledger-broker.service"], "TimeoutStopSec")) >= ROOM_TO_END_S


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    for name, unit in units().items():
        path = tmp_path / name
        path.write_text(unit.replace("/opt/dledger/bin/python", sys.executable))
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        own = [line for line in done.stderr.splitlines() if name in line]
        assert (done.returncode, own) == (0, []), done.stderr


def environments() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Where each container is described, the server that it runs, and its environment."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        yield f"compose.yaml, {name}", service["command"][0], service["environment"]
    for name, found in manifests():
        for container in containers_in(found):
            pod = {"status.podIP": "10.1.2.3", "metadata.name": "dledger-broker-0"}
            environment = {
                one["name"]: one.get("value") or pod[one["valueFrom"]["fieldRef"]["fieldPath"]]
                for one in container["env"]
            }
            expanded = {
                key: value.replace("$(POD_IP)", pod["status.podIP"])
                for key, value in environment.items()
            }
            yield name, container["args"][0], expanded


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((DEPLOY / "kubernetes").iterdir()):
        for found in yaml.safe_load_all(path.read_text()):
            yield f"{path.name}, {found['kind']} {found['metadata']['name']}", found


def containers_in(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        manifest["spec"].get("template", {"spec": {}})["spec"].get("containers", [])
    )
    return found


def variables_of(server: click.Command) -> set[str]:
    return {name for option in options_of(server).values() for name in option.envvar or ()}


def test_each_variable_of_a_container_is_an_option_and_has_a_value_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    members: dict[str, str] = {}
    ran = []
    for where, name, environment in environments():
        own = {key: value for key, value in environment.items() if key.startswith("DLEDGER_")}
        assert own.keys() <= variables_of(SERVERS[name]), where
        with monkeypatch.context() as patched:
            for key, value in own.items():
                patched.setenv(key, value)
            ctx = SERVERS[name].make_context(name, [])
        assert ctx.params["metrics"] == "0.0.0.0:9465", where
        ran.append(name)
        if name == "broker":
            config = checked_config(ctx)
            assert len(config.peers) == 3
            members[config.node_id] = str(config.address)
    assert sorted(ran) == ["broker"] * 4 + ["nameserver"] * 2
    assert members == {
        "n0": "172.28.7.10:10911",
        "n1": "172.28.7.11:10911",
        "n2": "172.28.7.12:10911",
        "dledger-broker-0": "10.1.2.3:10911",
    }


def test_the_manifests_of_kubernetes_belong_together() -> None:
    found = dict(manifests())
    kinds = sorted(one["kind"] for one in found.values())
    budget = ["Deployment", "PodDisruptionBudget", "Service", "Service", "StatefulSet"]
    assert kinds == budget
    labels = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in found.values()
        if containers_in(one)
    }
    for where, one in found.items():
        selector = one["spec"]["selector"]
        assert selector.get("matchLabels", selector) == labels[one["metadata"]["name"]], where
        for container in containers_in(one):
            ports = {port["name"] for port in container["ports"]}
            probes = (container["livenessProbe"], container["readinessProbe"])
            assert {probe["httpGet"]["path"] for probe in probes} == PROBES
            assert {probe["httpGet"]["port"] for probe in probes} == {"metrics"} <= ports
            security = container["securityContext"]
            assert not security["allowPrivilegeEscalation"]
    (brokers,) = [one for one in found.values() if one["kind"] == "StatefulSet"]
    assert brokers["spec"]["replicas"] == 3
    assert brokers["spec"]["podManagementPolicy"] == "Parallel"
    assert brokers["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= ROOM_TO_END_S
    (headless,) = [one for one in found.values() if one["spec"].get("clusterIP") == "None"]
    assert headless["spec"]["publishNotReadyAddresses"]
    assert headless["metadata"]["name"] == brokers["spec"]["serviceName"]


def test_the_image_has_what_the_package_needs() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    assert "requirements/base.txt" in text
    assert 'ENTRYPOINT ["dledger-mq"]' in text
    kept = re.findall(r"^!(.+)$", (DEPLOY / "Containerfile.dockerignore").read_text(), re.M)
    project = (DEPLOY.parent / "pyproject.toml").read_text()
    wheel = project.partition("[tool.hatch.build.targets.wheel]")[2].partition("]")[0]
    assert set(re.findall(r'"(\w+)"', wheel)) <= set(kept)
    assert all((DEPLOY.parent / name).exists() for name in kept)


def test_the_files_of_settings_start_a_name_server_and_a_broker(tmp_path: Path) -> None:
    names, clients, log, *metrics = free_addresses(5)
    settings = ("--config", str(DEPLOY / "nameserver.toml"), "--settings", str(tmp_path / "s"))
    files = ("--config", str(DEPLOY / "broker.toml"), "--dir", str(tmp_path / "data"))
    own = ("--listen", clients, "--peers", f"n0={log}", "--nameservers", names)
    with (
        running("nameserver", *settings, "--listen", names, "--metrics", metrics[0]) as first,
        running("broker", *files, *own, "--metrics", metrics[1]) as second,
    ):
        assert '"event": "listening"' in first.until_has("out", "\n")
        second.until_has("out", '"ready": true')
