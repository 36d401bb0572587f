"""`dledger-mq certificates`: an authority, and what it signs, for a group that enforces TLS."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result
from cryptography import x509

from dledger_mq.__main__ import main
from dledger_mq.clusters.certificate_folder import CertificateFolder
from dledger_mq.clusters.group_directory import ClusterPlan, GroupDirectory, GroupPlan, NodePlan
from dledger_mq.clusters.local_cluster import LocalCluster
from dledger_mq.errors import CertificatesRefused
from remoting.net.client import RemotingClient
from remoting.net.tls import ClientTls, ServerTls
from remoting.net.tls_config import ClientAuth, ServerTlsConfig, TlsMode
from remoting.wire.command import Command
from tests.remoting.net.recording_server import ECHO, Recorder, start


def made(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["certificates", str(folder), *options])


def names_in(path: Path) -> set[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    shown = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(one.value) for one in shown}


def test_members_name_servers_and_clients_get_certificates_with_their_names(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "certificates"
    ended = made(folder, "--host", "broker.example", "--host", "10.0.0.1", "--days", "30")
    assert ended.exit_code == 0, ended.output
    here = {"localhost", "127.0.0.1", "::1", "broker.example", "10.0.0.1"}
    for name in ("n0", "n1", "n2", "nameserver"):
        assert names_in(folder / f"{name}.pem") == {name, *here}
    assert names_in(folder / "client.pem") == {"client"}
    files = {path.name for path in folder.iterdir()}
    every = ("authority", "n0", "n1", "n2", "nameserver", "client")
    assert files == {f"{name}{end}" for name in every for end in (".pem", "-key.pem")}
    for key in folder.glob("*-key.pem"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    ends = x509.load_pem_x509_certificate((folder / "n0.pem").read_bytes()).not_valid_after_utc
    assert abs(ends - datetime.now(UTC) - timedelta(days=30)) < timedelta(hours=1)


def test_the_two_commands_that_come_next_are_printed(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    ended = made(folder, "--nodes", "1", "--groups", "2")
    assert f"dledger-mq up --dir group --nodes 1 --groups 2 --tls-dir {folder}" in ended.output
    assert f"dledger-mq send Greetings hello --tls-ca {folder}/authority.pem" in ended.output
    assert (folder / "a0.pem").exists()
    assert (folder / "b0.pem").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    assert made(folder).exit_code == 0
    before = {path: path.read_bytes() for path in folder.iterdir()}
    again = made(folder)
    assert again.exit_code == 1
    assert "it is not empty, and nothing is overwritten" in again.output
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("host", ["a b", "broker:10911", "", "ü"])
def test_a_host_that_is_no_name_is_refused_before_anything_is_made(
    tmp_path: Path, host: str
) -> None:
    ended = made(tmp_path / "certificates", "--host", host)
    assert ended.exit_code == 1
    assert "give names and IP addresses of machines" in ended.output
    assert not (tmp_path / "certificates").exists()


async def test_the_certificates_are_believed_by_servers_and_clients(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    folder = CertificateFolder(tmp_path / "certificates")
    assert (await trio.to_thread.run_sync(made, folder.path)).exit_code == 0
    config = ServerTlsConfig(
        certificate=folder.certificate("n0"),
        key=folder.key("n0"),
        authorities=folder.certificate("authority"),
        mode=TlsMode.ENFORCING,
        client_auth=ClientAuth.REQUIRE,
    )
    handler = Recorder()
    address = await start(nursery, handler, tls=ServerTls(config))
    tls = ClientTls(folder.client())
    tls._context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    await RemotingClient(nursery, tls=tls).request(address, Command(ECHO))
    assert handler.opened[0].names == frozenset({"client"})


def test_up_passes_certificates_to_all_processes_and_remembers_the_folder(
    tmp_path: Path,
) -> None:
    folder = CertificateFolder(tmp_path / "certificates")
    node = NodePlan("n0", "127.0.0.1:20911", "127.0.0.1:10911")
    plan = ClusterPlan("C", "127.0.0.1:9876", (GroupPlan("broker-a", (node,)),), folder)
    directory = GroupDirectory(tmp_path / "group")
    directory.lock()
    directory.write(plan, {})
    directory.unlock()
    assert directory.read_plan() == plan
    for program in LocalCluster(directory, plan, print).programs():
        assert program.arguments[-8:] == folder.server_options(program.name)
    with pytest.raises(CertificatesRefused, match=r"it has no authority.pem"):
        folder.check(["n0"])
    assert made(folder.path).exit_code == 0
    folder.check(["n0", "n1", "n2", "client", "nameserver"])
    with pytest.raises(CertificatesRefused, match=r"it has no n3.pem"):
        folder.check(["n3"])
