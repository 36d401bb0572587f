"""Commands refuse numbers and names that they cannot use before they ask a member."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dledger.command_line.ending import ExitCode
from dledger.config import NodeConfig, parse_address
from dledger.errors import ConfigInvalid
from dledger.node.host import HostConfig
from tests.dledger.commands.typed_command import typed

# Nothing listens there: a command that asked would end with 1.
GROUP = ("--peers", "n0=127.0.0.1:1")
TOO_LARGE = 2**63


@pytest.mark.parametrize("seconds", ["nan", "-1"])
@pytest.mark.parametrize("words", [("append", "x"), ("transfer",), ("members",)])
def test_a_timeout_that_is_no_time_is_a_wrong_call(words: tuple[str, ...], seconds: str) -> None:
    name, *arguments = words
    ended = typed(name, *GROUP, "--timeout", seconds, *arguments)
    assert ended.returncode == ExitCode.WRONG_CALL
    assert "--timeout" in ended.stderr


def test_an_interval_that_is_no_number_is_a_wrong_call() -> None:
    ended = typed("status", *GROUP, "--watch", "--interval", "nan")
    assert ended.returncode == ExitCode.WRONG_CALL
    assert "--interval" in ended.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("get", TOO_LARGE * 2),
        ("tail", "--from", TOO_LARGE * 2),
        ("members", "--remove", "n0", "--expected", TOO_LARGE * 2),
        ("tail", "--from", TOO_LARGE),
    ],
)
def test_an_index_beyond_every_log_is_a_wrong_call(words: tuple[object, ...]) -> None:
    name, *arguments = words
    ended = typed(name, *GROUP, *arguments)
    assert ended.returncode == ExitCode.WRONG_CALL
    assert str(TOO_LARGE - 1) in ended.stderr


def test_a_scrub_period_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="scrub_period_hours"):
        NodeConfig(
            group="g",
            node_id="n0",
            peers={"n0": "127.0.0.1:1"},
            data_dir=Path("data"),
            scrub_period_hours=float("nan"),
        )


@pytest.mark.parametrize(
    "options",
    [("--add", "x/y=127.0.0.1:1"), ("--remove", ""), ("--promote", "x" * 65), ("--demote", "a b")],
)
def test_a_name_that_no_member_can_have_is_not_sent(options: tuple[str, str]) -> None:
    ended = typed("members", *GROUP, "--timeout", "0", *options)
    assert ended.returncode == ExitCode.FAILED
    assert "is no member id" in ended.stderr


@pytest.mark.parametrize(
    "content",
    [
        *("[]", '"text"', "null", "5", '{"group": "g"}'),
        pytest.param("[" * 100_000, id="nested"),
    ],
)
def test_a_broken_file_of_the_group_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "group.json").write_text(content)
    ended = typed("get", "--dir", tmp_path, 0)
    assert ended.returncode == ExitCode.FAILED
    (line,) = ended.stderr.splitlines()
    assert f"{tmp_path}/group.json cannot be read" in line


def test_a_nul_in_the_file_of_options_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "dledger.toml"
    file.write_text('[serve]\ndir = "a\\u0000b"\n')
    ended = typed("--config", file, "serve")
    assert ended.returncode == ExitCode.FAILED
    (line,) = ended.stderr.splitlines()
    assert f"{file}, [serve] dir" in line
    assert "NUL" in line


def test_a_port_of_thousands_of_digits_is_no_port() -> None:
    with pytest.raises(ConfigInvalid, match="is not host:port"):
        parse_address("listen", "127.0.0.1:" + "1" * 5000)


@pytest.mark.parametrize("path", ["data", 5, None, Path("a\0b")], ids=repr)
def test_a_data_folder_that_is_no_path_is_refused_with_the_settings(path: Any) -> None:
    with pytest.raises(ConfigInvalid, match="data_dir"):
        NodeConfig(group="g", node_id="n0", peers={"n0": "127.0.0.1:1"}, data_dir=path)


@pytest.mark.parametrize("path", ["users.toml", Path("a\0b")], ids=repr)
def test_a_file_of_users_that_is_no_path_is_refused_with_the_settings(path: Any) -> None:
    with pytest.raises(ConfigInvalid, match="users"):
        HostConfig(address="127.0.0.1:1", users=path)
