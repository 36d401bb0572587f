"""Options of commands come from flags, the environment, a file and defaults, in this order."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import click
import pytest

from dledger.command_line.node_options import NODE_OPTIONS, node_settings, option_of
from dledger.command_line.option_sources import Tables, read_file
from dledger.commands.group_commands import commands
from dledger.config import NodeConfig
from dledger.errors import ConfigInvalid
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.store.store_config import StoreConfig
from tests.dledger.commands.typed_command import typed

# What docs/operations.md says of the table for all commands.
ALL_KEYS = {"group", "peers", "timeout", "tls-cert", "tls-key", "tls-ca"}

GOOD = """
[all]
group = "orders"

[all.peers]
n0 = "127.0.0.1:1"
n1 = "127.0.0.1:2"

[serve]
node = "n0"
dir = "data"
election-timeout-ms = 900
scrub_period_hours = 12
"""


def written(folder: Path, text: str) -> str:
    path = folder / "dledger.toml"
    path.write_text(text)
    return str(path)


def test_flags_go_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    environment = {"DLEDGER_SERVE_ELECTION_TIMEOUT_MS": "800", "DLEDGER_SERVE_NODE": "n1"}
    shown = typed(
        *("--config", path, "serve", "--print-config", "--node", "n0"), environment=environment
    )
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert 'node = "n0"  # --node' in lines
    assert "election-timeout-ms = 800  # DLEDGER_SERVE_ELECTION_TIMEOUT_MS" in lines
    assert f"scrub-period-hours = 12.0  # {path}" in lines
    assert f'group = "orders"  # {path}' in lines
    assert "heartbeat-interval-ms = 100  # default" in lines
    assert "# preferred-leader is not set" in lines
    assert not (tmp_path / "data").exists()


def test_what_is_printed_can_be_used_as_a_file(tmp_path: Path) -> None:
    first = typed("--config", written(tmp_path, GOOD), "serve", "--print-config")
    again = typed("--config", written(tmp_path, first.stdout), "serve", "--print-config")
    assert again.returncode == 0, again.stderr
    ours, theirs = tomllib.loads(again.stdout)["serve"], tomllib.loads(first.stdout)["serve"]
    assert ours == theirs
    assert ours["peers"] == "n0=127.0.0.1:1,n1=127.0.0.1:2"


def test_the_file_may_be_named_in_the_environment(tmp_path: Path) -> None:
    environment = {"DLEDGER_CONFIG": written(tmp_path, GOOD)}
    shown = typed("serve", "--print-config", environment=environment)
    assert "election-timeout-ms = 900" in shown.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[serve]\nelection-timeout = 5", "[serve] election-timeout: no such key; expected one of"),
        ("[server]\nnode = 'n0'", ", server: no such table; expected one of [all, append,"),
        ("serve = 5", "expected a table [serve]"),
        ("[all]\nnode = 'n0'", "[all] node: no such key; expected one of group, peers"),
        ("[serve]\nmax-batch-bytes = '5'", '"5" instead of a whole number'),
        ("[serve]\nmax-batch-bytes = true", "true instead of a whole number"),
        ("[serve]\njoin = 1", "1 instead of true or false"),
        ("[serve]\nlog-format = 'xml'", "expected one of text, json"),
        ("[serve]\nnode = 7", "7 instead of a text"),
        ("[members]\nadd = 'n1=a:1'", "instead of a list of texts"),
        ("[serve", "this is not TOML"),
        (GOOD + "max-batch-bytes = 0", "[serve] max-batch-bytes: must be at least 1"),
        (GOOD + "heartbeat-interval-ms = 800", "[serve] election-timeout-ms: must be at least two"),
        (GOOD + "snapshot-kept = 0", "[serve] snapshot-kept: 0 is not within"),
        (GOOD.replace('"127.0.0.1:1"', '"nowhere"'), "'nowhere' is not host:port"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_with_file_key_and_what_is_expected(
    text: str, said: str, tmp_path: Path
) -> None:
    path = written(tmp_path, text)
    ended = typed("--config", path, "serve", "--print-config")
    assert ended.returncode == 1
    assert said in ended.stderr
    assert path in ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr


def test_a_missing_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = typed("--config", "nowhere.toml", "status")
    assert ended.stderr == "dledger: nowhere.toml: cannot be read: No such file or directory\n"


def test_a_bad_value_of_the_environment_is_named_by_its_variable(tmp_path: Path) -> None:
    # A process: it would serve for ever if the value were taken.
    ended = subprocess.run(
        [sys.executable, "-m", "dledger", "--config", written(tmp_path, GOOD), "serve"],
        cwd=tmp_path,
        env={**os.environ, "DLEDGER_SERVE_MAX_BATCH_BYTES": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stderr == "dledger: DLEDGER_SERVE_MAX_BATCH_BYTES: must be at least 1\n"


def test_every_plain_setting_of_a_node_is_an_option() -> None:
    reached = {(option.part, option.field) for option in NODE_OPTIONS}
    identity = {"group", "node_id", "peers", "data_dir", "joining", "new"}
    for part in (NodeConfig, StoreConfig, SnapshotPolicy):
        plain = {
            field.name
            for field in fields(part)
            if field.name not in identity
            and str(field.type).removesuffix(" | None") in ("int", "float", "str", "bool")
        }
        assert {field for kind, field in reached if kind is part} == plain
    assert all(option.help for option in NODE_OPTIONS)


def test_every_option_that_can_be_typed_is_a_key_of_the_file(tmp_path: Path) -> None:
    missing = []
    for name, command in commands.commands.items():
        for option in command.params:
            if not isinstance(option, click.Option):
                continue
            key = max(option.opts, key=len).removeprefix("--")
            tables = (name, "all") if key in ALL_KEYS else (name,)
            for table in tables:
                path = Path(written(tmp_path, f"[{table}]\n{key} = 2.5"))
                try:
                    read_file(path, Tables(commands.commands, tuple(ALL_KEYS)))
                except ConfigInvalid as error:  # of a wrong type is right: the key is known
                    if "no such key" in str(error):
                        missing.append(f"[{table}] {key}")
    assert not missing


def test_certificates_of_a_file_are_in_force(tmp_path: Path) -> None:
    given = {"tls-cert": "n0.pem", "tls-key": "n0-key.pem", "tls-ca": "ca.pem"}
    text = GOOD.replace("[all]", "[all]\n" + "\n".join(f'{k} = "{v}"' for k, v in given.items()))
    shown = typed("--config", written(tmp_path, text), "serve", "--print-config")
    assert shown.returncode == 0, shown.stderr
    printed = tomllib.loads(shown.stdout)["serve"]
    assert {key: printed[key] for key in given} == given
    alone = text.replace('tls-key = "n0-key.pem"', "")
    ended = typed("--config", written(tmp_path, alone), "status")
    assert "--tls-key is missing" in ended.stderr.replace(":", "")
    assert len(ended.stderr.splitlines()) == 1


def test_options_arrive_where_they_belong() -> None:
    settings = node_settings(
        {"election_timeout_ms": 700, "segment_bytes": 8 * 2**20, "snapshot_kept": 3}
    )
    assert settings["election_timeout_ms"] == 700
    assert settings["store"].segment_bytes == 8 * 2**20
    assert settings["snapshots"].kept == 3
    assert option_of("snapshots.kept") == "snapshot_kept"
    assert option_of("peers.n0") == "peers"
