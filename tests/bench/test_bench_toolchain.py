"""Peers whose programs are missing are skipped with advice; what is built is built once."""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from pathlib import Path

import pytest

import dledger
from bench.machine import cpu_model, memory_gib, mount_of, this_machine
from bench.peers import etcd, nats
from bench.peers.watched import WATCHED
from bench.place import make_place
from bench.process_figures import memory_of, ran_s
from bench.systems import SYSTEMS
from bench.toolchain import Toolchain, Unavailable, go_version
from bench.workload import Workload
from dledger.errors import ConfigInvalid
from dledger.network.tls import GroupTls

GO = """#!/bin/sh
echo "$@" >> {log}
while [ "$1" != "-o" ]; do shift; done
printf '#!/bin/sh\\necho built\\n' > "$2"
"""


def program(path: Path, text: str) -> str:
    """Write a program, and let it be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def toolchain(folder: Path, **programs: str) -> Toolchain:
    """One that finds these programs and no others."""
    return Toolchain(folder / "build", which=programs.get)


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("etcd", "etcd is not found: install Debian's etcd-server, or put etcd on PATH"),
        ("dragonboat", "go is not found: install Go"),
        ("nats", "go is not found: install Go"),
        ("nats-default", "go is not found: install Go"),
        ("java", "java is not found: install a JDK"),
        ("tls", "openssl is not found: install OpenSSL 3"),
        ("tls-many", "openssl is not found: install OpenSSL 3"),
    ],
)
def test_a_peer_without_its_programs_says_how_to_get_them(
    tmp_path: Path, key: str, advice: str
) -> None:
    (system,) = [each for each in SYSTEMS if each.contender.key == key]
    with pytest.raises(Unavailable) as raised:
        system.prepare(toolchain(tmp_path))
    assert str(raised.value).startswith(advice)
    assert "\n" not in str(raised.value)


def test_certificates_are_made_once_and_each_names_its_member(tmp_path: Path) -> None:
    tools = Toolchain(tmp_path / "build")
    folder = tools.certificates(["n0", "n1"])
    made = (folder / "n0.pem").read_bytes()
    for name in ("n0", "n1"):
        tls = dledger.TlsConfig(
            certificate=folder / f"{name}.pem",
            key=folder / f"{name}-key.pem",
            authorities=folder / "authority.pem",
        )
        GroupTls(tls).check_names((name,))
        with pytest.raises(ConfigInvalid):
            GroupTls(tls).check_names(("n9",))
    assert Toolchain(tmp_path / "build").certificates(["n0", "n1"]) == folder
    assert (folder / "n0.pem").read_bytes() == made


@pytest.mark.parametrize("key", ["etcd", "nats", "java"])
def test_a_watched_peer_without_its_programs_is_unavailable_too(tmp_path: Path, key: str) -> None:
    (watched,) = [each for each in WATCHED if each.key == key]
    with pytest.raises(Unavailable):
        watched.prepare(toolchain(tmp_path))


def test_a_java_without_maven_is_not_enough(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="mvn is not found: install Maven"):
        toolchain(tmp_path, java="java", javac="javac").java_command()


def test_a_go_program_is_built_once(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    go = program(tmp_path / "go", GO.format(log=log))
    told: list[str] = []
    for _ in range(2):  # two runs of the benchmark
        chain = Toolchain(tmp_path / "build", which={"go": go}.get, building=told.append)
        built = chain.go_program("nats", "./nats")
        assert built.read_text().endswith("echo built\n")
    assert len(log.read_text().splitlines()) == 1
    assert "-mod=readonly" in log.read_text()
    assert told == ["nats (Go)"]


def test_a_build_that_fails_is_told_in_one_line_and_tried_again(tmp_path: Path) -> None:
    failing = "#!/bin/sh\necho downloading\necho 'error: no such module'\necho more\nexit 1\n"
    go = program(tmp_path / "go", failing)
    chain = toolchain(tmp_path, go=go)
    with pytest.raises(Unavailable, match=r"^go: error: no such module$"):
        chain.go_program("nats", "./nats")
    program(tmp_path / "go", GO.format(log=tmp_path / "calls"))
    assert chain.go_program("nats", "./nats").exists()


def test_java_is_compiled_once_with_what_maven_fetched(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    tool = f'#!/bin/sh\necho "$0 $@" >> {log}\n'
    names = ("java", "javac", "mvn")
    chain = toolchain(tmp_path, **{name: program(tmp_path / name, tool) for name in names})
    command = chain.java_command()
    assert chain.java_command() == command
    called = [Path(line.split()[0]).name for line in log.read_text().splitlines()]
    assert called == ["mvn", "javac"]
    assert "--offline" in log.read_text()  # the user's cache first
    assert command[0].endswith("/java")


def test_the_versions_are_those_of_the_module_file() -> None:
    assert go_version("github.com/lni/dragonboat/v4").startswith("4.0.0")
    assert go_version("github.com/nats-io/nats-server/v2").count(".") == 2
    assert go_version("nobody") == "?"


def test_a_place_has_an_address_for_each_use(tmp_path: Path) -> None:
    place = make_place(tmp_path / "run")
    assert place.folder.is_dir()
    assert list(place.peers) == list(place.inner) == ["n0", "n1", "n2"]
    assert len({*place.peers.values(), *place.inner.values()}) == 6


def test_only_the_syncing_nats_is_told_to_sync(tmp_path: Path) -> None:
    place = make_place(tmp_path / "run")
    assert "sync_interval: always" in nats.settings(place, "n1", syncs=True)
    assert "sync_interval" not in nats.settings(place, "n1", syncs=False)
    command = nats.server("server", place, "n1", syncs=True)
    assert place.peers["n1"] in Path(command[-1]).read_text()


def test_an_etcd_member_knows_the_others(tmp_path: Path) -> None:
    place = make_place(tmp_path / "run")
    words = " ".join(etcd.server("etcd", place, "n2"))
    assert all(f"{each}=http://{address}" in words for each, address in place.inner.items())
    assert f"--listen-client-urls http://{place.peers['n2']}" in words


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.contender.key)
def test_each_system_starts_its_load_with_the_workload(tmp_path: Path, system: object) -> None:
    tool = program(tmp_path / "tool", "#!/bin/sh\necho 'etcd Version: 9.9'\n")
    go = program(tmp_path / "go", GO.format(log=tmp_path / "calls"))
    chain = Toolchain(tmp_path / "build", which=lambda name: go if name == "go" else tool)
    workload = Workload(in_flight=3)
    place = make_place(tmp_path / "run")
    prepared = system.prepare(chain)  # type: ignore[attr-defined]
    commands = prepared.commands(place, workload)
    assert any(workload.to_json() in command for command in commands)
    if not system.contender.limit:  # type: ignore[attr-defined]
        assert len(commands) >= 3
        assert prepared.version


# --- the machine ------------------------------------------------------------------------------


def test_the_machine_is_described(tmp_path: Path) -> None:
    words = this_machine(tmp_path).in_words()
    assert "GiB of memory" in words
    assert re.search(
        r"Python 3\.\d+\.\d+ \(a million turns of an empty loop in [1-9]\d* ms\)", words
    )


def test_the_files_of_the_kernel_are_read() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: Fast 9000\n") == "Fast 9000"
    assert memory_gib("MemFree: 1 kB\nMemTotal:       25165824 kB\n") == 24.0
    assert memory_gib("") == 0.0


def test_a_path_is_on_the_innermost_mount() -> None:
    mounts = "/dev/a / ext4 rw 0 0\n/dev/b /data xfs rw 0 0\n/dev/c /da tmpfs rw 0 0\n"
    assert mount_of("/data/run", mounts) == ("/dev/b", "xfs")
    assert mount_of("/dat", mounts) == ("/dev/a", "ext4")


def test_memory_of_a_process_is_read() -> None:
    found = memory_of("Name:\tpython\nVmRSS:\t   20480 kB\nRssAnon:\t   10240 kB\n")
    assert found == (20.0, 10.0)


def test_processor_time_of_a_process_counts_threads_that_have_ended() -> None:
    def compute() -> None:
        ends = time.thread_time() + 0.05
        while time.thread_time() < ends:
            pass

    before = ran_s(os.getpid())
    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    assert ran_s(os.getpid()) - before >= 0.05
