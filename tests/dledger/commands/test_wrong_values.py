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
from tests.dledger.rescue.test_group_recovery import a_member

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


@pytest.mark.parametrize(
    "words",
    [
        ("members", *GROUP, "--timeout", "0", "--add", "n1=0.0.0.0:1"),
        ("members", *GROUP, "--timeout", "0", "--learner", "n1=[::]:1"),
        ("members", *GROUP, "--timeout", "0", "--move", "n0=0.0.0.0:1"),
        ("recover", "--without-check", "--address", "0.0.0.0:1"),
        ("recover", "--without-check", "--address", "h:1", "--learner", "n1=0.0.0.0:1"),
        ("restore", "--without-check", "--address", "0.0.0.0:1", "--dir"),
    ],
)
def test_an_address_that_nobody_reaches_is_not_given_to_a_group(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    name, *arguments = words
    if name == "restore":
        arguments.append(str(tmp_path / "new"))
    if name != "members":
        arguments.append(str(a_member(tmp_path)))
    ended = typed(name, *arguments)
    assert ended.returncode == ExitCode.FAILED
    (line,) = ended.stderr.splitlines()
    assert "cannot connect to" in line
    assert "--listen" in line


@pytest.mark.parametrize("address", ["no host:1", "h\u00f6st:1", "x" * 300 + ":1"])
def test_a_restore_to_an_address_that_no_member_can_have_copies_nothing(
    tmp_path: Path, address: str
) -> None:
    home, target = a_member(tmp_path), tmp_path / "new"
    ended = typed("restore", "--without-check", "--address", address, "--dir", target, home)
    assert ended.returncode == ExitCode.FAILED
    assert "--address" in ended.stderr
    assert not target.exists()


@pytest.mark.parametrize("path", ["data", 5, None, Path("a\0b")], ids=repr)
def test_a_data_folder_that_is_no_path_is_refused_with_the_settings(path: Any) -> None:
    with pytest.raises(ConfigInvalid, match="data_dir"):
        NodeConfig(group="g", node_id="n0", peers={"n0": "127.0.0.1:1"}, data_dir=path)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("group", 5), ("node_id", None), ("listen", ("h", 1)), ("group", "x" * 65)),
        *(("peers", ["n0=h:1"]), ("peers", {"n0": ("h", 1)}), ("peers", {"n0": "h:1", 5: "h:2"})),
        *(("peers", {"n0": "h:1", "n1": "no host:2"}), ("preferred_leader", 7)),
    ],
)
@pytest.mark.parametrize("joining", [False, True])
def test_a_setting_of_another_type_is_refused_with_its_name(
    setting: str, value: Any, joining: bool
) -> None:
    good: dict[str, Any] = {
        **{"group": "g", "node_id": "n0", "peers": {"n0": "h:1"}, "data_dir": Path("data")},
        "joining": joining,
    }
    with pytest.raises(ConfigInvalid) as refused:
        NodeConfig(**{**good, setting: value})
    assert refused.value.setting.startswith(setting)


@pytest.mark.parametrize("path", ["users.toml", Path("a\0b")], ids=repr)
def test_a_file_of_users_that_is_no_path_is_refused_with_the_settings(path: Any) -> None:
    with pytest.raises(ConfigInvalid, match="users"):
        HostConfig(address="127.0.0.1:1", users=path)
