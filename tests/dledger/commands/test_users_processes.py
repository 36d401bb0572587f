"""Users of the log's port as their operator has them: files, commands, a signal."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger.free_ports import free_ports
from tests.dledger.commands.typed_command import dledger, typed
from tests.dledger.serving.log_users import secret_of, write_users

WITHIN_S = 60.0


class Served:
    """One member of a group of one, with users."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.peers = f"n0=127.0.0.1:{free_ports(1)[0]}"
        self.users = write_users(
            folder / "users.toml", {"ann": ["append", "status"], "boss": ["read", "members"]}
        )
        command = (sys.executable, "-m", "dledger", "serve", "--node", "n0", "--new")
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [
                    *(*command, "--peers", self.peers, "--dir", str(folder / "data")),
                    *("--users", str(self.users)),
                ],
                stdout=out,
                stderr=out,
            )

    @property
    def log(self) -> Path:
        return self.folder / "out"

    def until_logged(self, text: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while text not in self.log.read_text():
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def credentials(self, user: str) -> Path:
        path = self.folder / f"{user}.toml"
        path.touch(0o600)
        path.write_text(f'access_key = "{user}"\nsecret_key = "{secret_of(user)}"\n')
        return path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    member = Served(tmp_path)
    try:
        member.until_logged("leader of term")
        yield member
    finally:
        member.process.kill()
        member.process.wait()


def test_commands_take_credentials_and_a_signal_reads_the_users_again(served: Served) -> None:
    group = ("--peers", served.peers)
    ann = ("--credentials", served.credentials("ann"))
    dledger("append", *group, *ann, "hello")
    environment = {"DLEDGER_CREDENTIALS": str(served.credentials("boss"))}
    assert "hello" in dledger("tail", *group, environment=environment).stdout
    refused = typed("tail", *group, *ann)
    assert refused.returncode == 1
    assert refused.stderr.startswith("dledger: user ann may not ask for entries: it lacks the")
    assert refused.stderr.count("\n") == 1
    refused = typed("append", *group, "nobody's")
    assert refused.returncode == 1
    assert "users are asked for here: give credentials" in refused.stderr
    assert refused.stderr.count("\n") == 1
    # A file that cannot be used changes nothing, and then one that can does.
    served.users.write_text("mode = 1")
    served.process.send_signal(signal.SIGHUP)
    served.until_logged("the old users stay in use: users: ")
    dledger("append", *group, *ann, "again")
    write_users(served.users, {"boss": ["read"]})
    served.process.send_signal(signal.SIGHUP)
    served.until_logged("users were read again")
    refused = typed("append", *group, *ann, "late")
    assert refused.returncode == 1
    assert "this user is unknown, or its secret is wrong" in refused.stderr
    bodies = dledger("tail", *group, environment=environment).stdout
    assert "again" in bodies
    assert "late" not in bodies
    said = served.log.read_text()
    assert not [user for user in ("ann", "boss") if secret_of(user) in said]


def test_the_settings_show_the_file_and_no_secret(tmp_path: Path) -> None:
    users = write_users(tmp_path / "users.toml", {"ann": []})
    member = ("serve", "--node", "n0", "--dir", str(tmp_path), "--peers", "n0=127.0.0.1:1")
    shown = dledger(*member, "--print-config", environment={"DLEDGER_SERVE_USERS": str(users)})
    assert f'users = "{users}"  # DLEDGER_SERVE_USERS' in shown.stdout.splitlines()
    assert "insecure = false  # default" in shown.stdout.splitlines()
    assert secret_of("ann") not in shown.stdout
