"""The units, images, manifests and files of settings in `deploy` fit the programs."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from broker.broker_command import broker
from broker.config_of_options import checked_config
from dledger.command_line.option_sources import options_of
from dledger.free_ports import free_addresses
from dledger_mq import Credentials, Message, Producer, PullConsumer, SendResult, Tls
from dledger_mq.blocking import open_producer, open_pull_consumer
from dledger_mq.errors import MessagingError, Rejected
from nameserver.nameserver_command import main as nameserver
from proxy.proxy_command import main as proxy
from remoting.net.access_file import read_access_file
from remoting.wire.errors import RemotingError
from tests.broker.serving.test_broker_config_file import running

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVERS = {"broker": broker, "nameserver": nameserver, "proxy": proxy}
# Those that the files use, and no others.
PROBES = {"/healthz", "/readyz"}
ROOM_TO_END_S = 40  # 5 s, and 30 s for a slow disk
# Where the files name certificates and the file of access control.
SECRETS = "/etc/dledger"
POD = {
    "status.podIP": "10.1.2.3",
    "metadata.labels['apps.kubernetes.io/pod-index']": "0",
}


def units() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((DEPLOY / "systemd").iterdir())}


def value_in(unit: str, key: str) -> str:
    (found,) = re.findall(rf"^{key}=(.*)$", unit, re.M)
    return str(found)


def test_the_units_start_reload_watch_and_end_the_servers() -> None:
    assert set(units()) == {f"dledger-{server}.service" for server in SERVERS}
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
        if server == "proxy":
            assert "StateDirectory" not in unit  # it keeps nothing
            continue
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


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return found


def environments() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Where each server's container is described, the server that it runs, and its environment."""
    for name, service in compose().items():
        if "environment" in service:
            yield f"compose.yaml, {name}", service["command"][0], service["environment"]
    for name, found in manifests():
        for container in containers_in(found):
            yield name, container["args"][0], environment_in(container)


def environment_in(container: dict[str, Any]) -> dict[str, str]:
    """As Kubernetes has it: a variable stands for those that are named before it."""
    found: dict[str, str] = {}
    for one in container.get("env", ()):
        value = one.get("value") or POD[one["valueFrom"]["fieldRef"]["fieldPath"]]
        for key, known in found.items():
            value = value.replace(f"$({key})", known)
        found[one["name"]] = value
    return found


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((DEPLOY / "kubernetes").iterdir()):
        for found in yaml.safe_load_all(path.read_text()):
            yield f"{path.name}, {found['kind']} {found['metadata']['name']}", found


def containers_in(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pod_of(manifest).get("containers", [])
    return found


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["spec"].get("template", {"spec": {}})["spec"]
    return found


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates and the file of access control, as a service of compose makes them."""
    folder = tmp_path_factory.mktemp("secrets")
    run_script(compose()["secrets"]["command"][0], folder)
    return folder


def run_script(script: str, secrets: Path, **environment: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["sh", "-euc", script.replace(SECRETS, str(secrets))],
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        timeout=60,
        check=True,
    )


def moved(text: str, replaced: dict[str, str]) -> str:
    for shown, taken in replaced.items():
        text = text.replace(shown, taken)
    return text


def is_for_its_user_alone(path: Path) -> bool:
    return not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def variables_of(server: click.Command) -> set[str]:
    return {
        name
        for option in options_of(server).values()
        for name in ([option.envvar] if isinstance(option.envvar, str) else option.envvar or ())
    }


def test_each_variable_of_a_container_is_an_option_and_has_a_value_that_fits(
    monkeypatch: pytest.MonkeyPatch, secrets: Path
) -> None:
    members: dict[str, str] = {}
    ran: list[str] = []
    for where, name, environment in environments():
        own = {
            key: value.replace(SECRETS, str(secrets))
            for key, value in environment.items()
            if key.startswith("DLEDGER_")
        }
        assert own.keys() <= variables_of(SERVERS[name]), where
        with monkeypatch.context() as patched:
            for key, value in own.items():
                patched.setenv(key, value)
            ctx = SERVERS[name].make_context(name, [])
        assert ctx.params["metrics"] == "0.0.0.0:9465", where
        assert ctx.params["tls_mode"] == "enforcing", where
        user = "credentials" if name == "proxy" else "access_file"
        assert ctx.params[user] == secrets / "access.toml", where
        assert not ctx.params["insecure"], where
        assert {f"DLEDGER_TLS_{file}" for file in ("CERT", "KEY")} <= own.keys(), where
        authority = "DLEDGER_PROXY_BROKERS_CA" if name == "proxy" else "DLEDGER_TLS_CA"
        assert authority in own, where
        ran.append(name)
        if name == "broker":
            config = checked_config(ctx)
            assert len(config.peers) == 3
            assert config.node_id in config.peers
            members[f"{where}: {config.node_id}"] = str(config.address)
    assert sorted(ran) == ["broker"] * 4 + ["nameserver"] * 2 + ["proxy"] * 2
    assert members == {
        "compose.yaml, n0: n0": "172.28.7.10:10911",
        "compose.yaml, n1: n1": "172.28.7.11:10911",
        "compose.yaml, n2: n2": "172.28.7.12:10911",
        "broker.yaml, StatefulSet dledger-broker: n0": "10.1.2.3:10911",
    }


def test_the_manifests_of_kubernetes_belong_together() -> None:
    found = dict(manifests())
    kinds = sorted(one["kind"] for one in found.values())
    proxies = ["Deployment", "PodDisruptionBudget", "Service"]
    others = ["Deployment", "PodDisruptionBudget", "Service", "Service", "StatefulSet"]
    assert kinds == sorted(proxies + others)
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


def test_compose_makes_secrets_once_and_for_the_servers_alone(
    secrets: Path, tmp_path: Path
) -> None:
    services = compose()
    assert services.pop("secrets")["volumes"] == [f"secrets:{SECRETS}"]
    for service in services.values():
        assert f"secrets:{SECRETS}:ro" in service["volumes"]
        after = service["depends_on"]["secrets"]
        assert after == {"condition": "service_completed_successfully"}
    made = shutil.copytree(secrets, tmp_path / "secrets")
    first = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    keys = {path.name for path in first if path.name.endswith("-key.pem")}
    assert {"n0-key.pem", "n1-key.pem", "n2-key.pem", "nameserver-key.pem"} <= keys
    assert all(map(is_for_its_user_alone, (made / "access.toml", *made.rglob("*-key.pem"))))
    # Not again, and not half: what an end in the middle left is made anew.
    (made / "access.toml").unlink()
    (made / "access.new").touch()
    (made / "certificates.new").mkdir()
    run_script(compose_script := compose()["secrets"]["command"][0], made)
    run_script(compose_script, made)
    read_access_file(made / "access.toml")  # does not raise
    again = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    del first[made / "access.toml"], again[made / "access.toml"]
    assert again == first


@pytest.mark.parametrize("number", range(3))
def test_a_pod_gets_its_own_certificate_and_reads_the_file_of_access_control(
    number: int, secrets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(POD, "metadata.labels['apps.kubernetes.io/pod-index']", str(number))
    made = shutil.copytree(secrets, tmp_path / "made")
    for path in made.rglob("*.*"):
        path.chmod(0o440)  # as files of a Secret are, with an fsGroup
    for _where, found in manifests():
        for container in pod_of(found).get("initContainers", ()):
            (server,) = containers_in(found)
            environment = environment_in(server)
            got = tmp_path / found["metadata"]["name"]
            got.mkdir()
            shell, _flags, script = container["command"]
            assert shell == "sh"
            script = moved(
                script,
                {"/secrets/tls": str(made / "certificates"), "/secrets/access": str(made)},
            )
            for _restart in range(2):
                run_script(script, got, **environment_in(container))
            files = {path.name for path in got.iterdir()}
            assert files == {"authority.pem", "server.pem", "server-key.pem", "access.toml"}
            assert all(map(is_for_its_user_alone, got.iterdir()))
            read_access_file(got / "access.toml")  # does not raise
            # A proxy has the name server's.
            name = environment.get("DLEDGER_BROKER_NODE", "nameserver")
            for suffix in (".pem", "-key.pem"):
                own = (made / "certificates" / f"{name}{suffix}").read_bytes()
                assert (got / f"server{suffix}").read_bytes() == own
            for key, value in environment.items():
                if value.startswith(SECRETS):
                    assert Path(value).name in files, key
            # Only this sees the Secrets: a server has its own key alone.
            seen = {one["name"] for one in container["volumeMounts"]}
            assert seen == {"tls", "access", "secrets"}
            assert {"tls", "access"}.isdisjoint(one["name"] for one in server["volumeMounts"])
            volumes = {one["name"]: one for one in pod_of(found)["volumes"]}
            for secret in ("tls", "access"):
                wanted = {"secretName": f"dledger-{secret}", "defaultMode": 0o400}
                assert volumes[secret]["secret"] == wanted
            assert volumes["secrets"]["emptyDir"]["medium"] == "Memory"
            assert pod_of(found)["securityContext"]["fsGroup"] == 10001
    assert len(list(tmp_path.iterdir())) == 4


def test_the_image_has_what_the_package_needs() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    assert "requirements/base.txt" in text
    assert 'ENTRYPOINT ["dledger-mq"]' in text
    kept = re.findall(r"^!(.+)$", (DEPLOY / "Containerfile.dockerignore").read_text(), re.M)
    project = (DEPLOY.parent / "pyproject.toml").read_text()
    wheel = project.partition("[tool.hatch.build.targets.wheel]")[2].partition("]")[0]
    assert set(re.findall(r'"(\w+)"', wheel)) <= set(kept)
    assert all((DEPLOY.parent / name).exists() for name in kept)


def sent_soon(producer: Producer) -> SendResult:
    """A message of a producer, once there is a leader that the name server knows."""
    ends_at = time.monotonic() + 30
    with open_producer(producer) as opened:
        while True:
            try:
                return opened.send(Message("Greetings", b"hello"))
            except (MessagingError, RemotingError):
                assert time.monotonic() < ends_at
                time.sleep(0.2)


def send_and_consume(names: str, secrets: Path) -> None:
    """As the administrator over TLS; and without the one or the other it is refused."""
    certificates = secrets / "certificates"
    tls = Tls(
        authorities=certificates / "authority.pem",
        certificate=certificates / "client.pem",
        key=certificates / "client-key.pem",
    )
    admin = read_access_file(secrets / "access.toml").admin
    sent = sent_soon(Producer("writers", nameservers=[names], tls=tls, credentials=admin))
    consumer = PullConsumer("readers", nameservers=[names], tls=tls, credentials=admin)
    with open_pull_consumer(consumer) as reader:
        found = reader.pull(sent.queue, sent.queue_offset)
        assert [message.body for message in found.messages] == [b"hello"]
    stranger = Credentials(admin.access_key, "another-secret")
    for with_tls, credentials, reason in (
        (None, admin, "no name server of .* answers"),
        (tls, None, "NO_PERMISSION: not permitted: it is not signed"),
        (tls, stranger, "NO_PERMISSION: .* or its signature is wrong"),
    ):
        producer = Producer("w", nameservers=[names], tls=with_tls, credentials=credentials)
        with open_producer(producer) as refused, pytest.raises(Rejected, match=reason):
            refused.send(Message("Greetings", b"hello"), timeout_s=10)


def test_the_files_of_settings_start_a_name_server_and_a_broker(
    secrets: Path, tmp_path: Path
) -> None:
    names, clients, log, *metrics = free_addresses(5)
    for name in SERVERS:
        text = (DEPLOY / f"{name}.toml").read_text()
        (tmp_path / f"{name}.toml").write_text(text.replace(SECRETS, str(secrets)))
    here = ("--config", str(tmp_path / "nameserver.toml"), "--settings", str(tmp_path / "s"))
    files = ("--config", str(tmp_path / "broker.toml"), "--dir", str(tmp_path / "data"))
    own = ("--listen", clients, "--peers", f"n0={log}", "--nameservers", names)
    with (
        running("nameserver", *here, "--listen", names, "--metrics", metrics[0]) as first,
        running("broker", *files, *own, "--metrics", metrics[1]) as second,
    ):
        assert '"event": "listening"' in first.until_has("out", "\n")
        second.until_has("out", '"ready": true')
        send_and_consume(names, secrets)


def addresses_here(texts: Sequence[str]) -> dict[str, str]:
    """For each address of the containers one that is free on this machine."""
    shown = sorted({found for text in texts for found in re.findall(r"172[\d.]+:\d+", text)})
    return dict(zip(shown, free_addresses(len(shown)), strict=True))


@pytest.mark.long  # by files of settings, the same servers do so in the default suite
def test_the_servers_of_compose_speak_tls_and_ask_who_it_is(secrets: Path, tmp_path: Path) -> None:
    found = [
        (where, name, environment)
        for where, name, environment in environments()
        if where.startswith("compose.yaml")
    ]
    here = addresses_here([value for *_, one in found for value in one.values()])
    (names,) = free_addresses(1)
    here |= {"nameserver:9876": names, "0.0.0.0:9876": names, SECRETS: str(secrets)}
    here["0.0.0.0:8081"] = free_addresses(1)[0]
    with ExitStack() as stack:
        servers = []
        for where, name, environment in found:
            own = {"/data": str(tmp_path / where.split()[-1]), "0.0.0.0:9465": free_addresses(1)[0]}
            mine = {key: moved(value, {**here, **own}) for key, value in environment.items()}
            servers.append(stack.enter_context(running(name, **mine)))
        for server in servers:
            server.until_has("out", '"event": "listening"')
        assert len(servers) == 5
        send_and_consume(names, secrets)
