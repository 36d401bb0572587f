"""Servers that other machines reach say what protects them, or that nothing does."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.broker_command import _check_protected, broker
from broker.broker_command import main as broker_main
from broker.config_of_options import checked_config
from dledger.command_line.open_address import is_only_here, problem_of_open_address
from dledger.commands import serve_command
from dledger.commands.serve_command import serve
from nameserver.nameserver_command import main as nameserver_main
from remoting.net.access_file import new_access_file
from tests.dledger.commands.typed_command import typed
from tests.dledger.serving.log_users import write_users


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("broker.example.org", False),
        ("127.0.0.1.example.org", False),
        ("", False),
    ],
)
def test_only_loopback_addresses_are_of_this_machine_alone(host: str, is_here: bool) -> None:
    assert is_only_here(host) is is_here
    assert (problem_of_open_address(host, is_insecure=False) is None) is is_here


def test_who_asks_for_it_is_warned_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert problem_of_open_address("10.0.0.1", is_insecure=True) is None
        assert problem_of_open_address("127.0.0.1", is_insecure=True) is None
    assert [one.getMessage().count("\n") for one in caplog.records] == [0]
    assert "--insecure: other machines reach 10.0.0.1" in caplog.text


def test_a_broker_and_a_name_server_do_not_start_unprotected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    access = tmp_path / "access.toml"
    new_access_file(access, "admin")
    permissive = {"--access": str(access), "--log-users": "permissive"}
    here = {"--listen": "127.0.0.1:10911", "--peers": "n0=127.0.0.1:20911"}
    for more, others in (
        (("--listen", "10.1.2.3:10911"), {}),
        (("--listen-group", "10.1.2.3:10912"), {}),
        (("--peers", "n0=10.1.2.3:20911"), {}),
        # Users protect the port of the log if they are asked for there.
        (("--peers", "n0=10.1.2.3:20911"), permissive),
        (("--listen-peers", "10.1.2.3:20911"), permissive),
    ):
        options = {**here, **others, **dict([more])}
        words = [word for pair in options.items() for word in pair]
        given = ["--group", "g", "--node", "n0", *words]
        assert broker_main([*given, "--dir", str(tmp_path / "data")]) == 1
        said = capsys.readouterr().err
        assert said.startswith(f"broker: {more[0]}: other machines reach 10.1.2.3")
        assert said.count("\n") == 1
    assert not (tmp_path / "data").exists()
    ended = CliRunner().invoke(nameserver_main, ["--listen", "10.1.2.3:9876"])
    assert (ended.exit_code, ended.output.count("\n")) == (1, 1)
    assert "--listen: other machines reach 10.1.2.3" in ended.output


def test_access_control_protects_all_ports_of_a_broker(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    new_access_file(access, "admin")
    words = ["--group", "g", "--node", "n0", "--peers", "n0=10.1.2.3:20911", "--listen"]
    words += ["10.1.2.3:10911", "--access", str(access), "--dir", str(tmp_path / "data")]
    with broker.make_context("broker", words) as ctx:
        _check_protected(checked_config(ctx), ctx)


def test_dledger_serve_does_not_start_unprotected(tmp_path: Path) -> None:
    permissive = write_users(tmp_path / "permissive.toml", {"ann": []}, mode="permissive")
    member = ("serve", "--node", "n0", "--dir", str(tmp_path / "data"))
    for place, users in (
        ("--peers", ()),
        ("--listen", ()),
        ("--peers", ("--users", permissive)),
    ):
        places = ["--peers", "n0=10.1.2.3:20911"]
        if place == "--listen":
            places = ["--peers", "n0=127.0.0.1:20911", "--listen", "0.0.0.0:20911"]
        ended = typed(*member, *places, *users)
        assert ended.returncode == 1
        assert ended.stderr.startswith(f"dledger: {place}: other machines reach ")
        assert "neither TLS nor users that are asked for" in ended.stderr
        assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_users_or_a_word_are_enough_to_listen_for_other_machines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users = write_users(tmp_path / "users.toml", {"ann": []})
    words = ["--node", "n0", "--dir", str(tmp_path), "--peers", "n0=10.1.2.3:20911"]
    for more in (["--users", str(users)], ["--insecure"]):
        caplog.clear()
        with serve.make_context("serve", [*words, *more]) as ctx:
            serve_command._check_protected(serve_command.checked_config(ctx), ctx)
        warned = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warned) == (more == ["--insecure"])


def test_a_file_of_users_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text("")
    member = ("serve", "--node", "n0", "--dir", str(tmp_path / "data"))
    ended = typed(*member, "--peers", "n0=127.0.0.1:1", "--users", users)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"dledger: users: {users}: others can read")
    assert ended.stderr.count("\n") == 1
