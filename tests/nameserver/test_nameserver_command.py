"""The name server as a process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from click.testing import CliRunner

from dledger.free_ports import free_ports
from nameserver.nameserver_command import _may_change, main
from remoting.net.networks import parse_networks
from tests.remoting.net.certificates import Authority


@contextmanager
def _running(*options: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A name server, and what it complains of. It ends in order."""
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [sys.executable, "-m", "nameserver", "--listen", f"127.0.0.1:{port}", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        assert "listening" in process.stdout.readline()
        yield process, process.stderr
        process.terminate()
        assert process.wait(10) == 0


@pytest.mark.real_starts
def test_a_name_server_tells_of_a_hangup_and_goes_on() -> None:
    with _running() as (process, complaints):
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            assert "SIGHUP: there is no file to read again" in complaints.readline()


def test_a_name_server_reads_certificates_again_at_a_hangup(tmp_path: Path) -> None:
    files = Authority(tmp_path / "certificates").sign("nameserver", "127.0.0.1")
    options = ("--tls-cert", str(files.certificate), "--tls-key", str(files.key))
    with _running(*options) as (process, complaints):
        for content, told in (
            (files.key.read_bytes(), "certificates were read again"),
            (b"half a file", "the old certificates stay in use: --tls-cert, --tls-key"),
        ):
            files.key.write_bytes(content)
            process.send_signal(signal.SIGHUP)
            assert told in complaints.readline()


def test_certificates_that_cannot_be_used_are_one_line(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    for options, words in (
        (("--tls-cert", missing), "--tls-key: is missing"),
        (("--tls-cert", missing, "--tls-key", missing), "missing.pem cannot be used"),
        (("--tls-client-auth", "require"), "--tls-client-auth: require needs certificates"),
    ):
        result = CliRunner().invoke(main, ["--listen", "127.0.0.1:9876", *options])
        assert result.exit_code == 1
        assert words in result.output
        assert result.output.count("\n") == 1


def test_networks_of_brokers_and_operators_are_read_or_refused() -> None:
    networks = parse_networks("10.0.0.0/8, 127.0.0.1,fe80::/10")
    told = {
        host: _may_change(networks, host) for host in ("10.1.2.3", "127.0.0.1", "11.0.0.1", "::1")
    }
    assert told == {"10.1.2.3": True, "127.0.0.1": True, "11.0.0.1": False, "::1": False}
    assert _may_change(networks, "fe80::1%eth0")
    assert _may_change(parse_networks("::ffff:10.0.0.0/104"), "10.1.2.3")
    assert _may_change(None, "11.0.0.1")
    for wrong in ("", "10.0.0.0/33", "brokers.example.org", "10.0.0.1/8"):
        result = CliRunner().invoke(main, ["--changes-from", wrong])
        assert result.exit_code == 2
        assert "give networks, as 10.0.0.0/8" in result.output
