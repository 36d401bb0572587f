"""The file of access control: what it may hold, and who may read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from remoting.net.access_file import (
    AccessFileInForce,
    AccessFileUnusable,
    new_access_file,
    new_credentials_file,
    read_access_file,
    read_credentials,
)
from remoting.wire.signature import Credentials
from remoting.wire.users import AccessFile, user_problem

SEAL = b'seal_key = "' + 32 * b"ab" + b'"\n'


def test_a_new_file_is_read_back_by_servers_and_by_clients(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    made = new_access_file(path, "admin")
    assert read_access_file(path) == made
    assert read_credentials(path) == made.admin
    assert path.stat().st_mode & 0o777 == 0o600
    assert new_access_file(tmp_path / "other", "admin") != made


def test_a_file_of_a_client_has_no_key_for_servers(tmp_path: Path) -> None:
    path = tmp_path / "reader.toml"
    made = new_credentials_file(path, "reader")
    assert read_credentials(path) == made
    with pytest.raises(AccessFileUnusable, match="seal_key is missing"):
        read_access_file(path)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text("mine", encoding="ascii")
    for make in (new_access_file, new_credentials_file):
        with pytest.raises(AccessFileUnusable, match="nothing is overwritten"):
            make(path, "admin")
    assert path.read_text(encoding="ascii") == "mine"


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a*", "a,b", "é", 65 * "a", "a\n"])
def test_a_name_that_no_user_may_have_makes_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(AccessFileUnusable):
        new_access_file(tmp_path / "access.toml", name)
    assert list(tmp_path.iterdir()) == []


def test_each_name_that_a_user_may_have_makes_a_file(tmp_path: Path) -> None:
    names = [f"a{chr(code)}b" for code in range(128)]
    for number, name in enumerate(names):
        if user_problem(name) is None:
            path = tmp_path / str(number)
            assert new_credentials_file(path, name) == read_credentials(path)
    assert {'a"b', "a\\b", "a'b", "a#b"} <= {name for name in names if user_problem(name) is None}


def test_a_file_that_is_read_again_changes_the_administrator_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "access.toml"
    first = new_access_file(path, "admin")
    seal = f'seal_key = "{first.seal_key.hex()}"\n'
    taken: list[AccessFile] = []
    in_force = AccessFileInForce(path, first, taken.append)
    in_force.read_again()
    assert taken == []  # the same
    root = 'access_key = "root"\nsecret_key = "another-secret"\n'
    path.write_text(root + seal, encoding="ascii")
    in_force.read_again()
    assert taken == [AccessFile(Credentials("root", "another-secret"), first.seal_key)]
    assert in_force.file == taken[0]
    caplog.clear()
    for content, words in (
        (root + f'seal_key = "{64 * "a"}"\n', "seal_key is another one"),
        ("half a file", "not TOML"),
        (root, "seal_key is missing"),
        (root.replace("another-", "") + seal, "secret_key: give 7"),
    ):
        path.write_text(content, encoding="ascii")
        in_force.read_again()
        assert words in caplog.text
        assert "stays in force" in caplog.text
        caplog.clear()
    path.unlink()
    in_force.read_again()
    assert "No such file" in caplog.text
    path.write_text(root + seal, encoding="ascii")
    path.chmod(0o644)
    in_force.read_again()
    assert "chmod 600" in caplog.text
    assert len(taken) == 1
    assert "-secret" not in caplog.text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff", "not TOML"),
        (b"= 1", "not TOML"),
        (b"a = " + 8000 * b"[", "not TOML"),
        (b'access_key = "admin"\nsecret_key = 7\n', "secret_key is missing, or no text"),
        (b'secret_key = "long-enough"\n', "access_key is missing"),
        (b'access_key = "admin"\nsecret_key = "short"\n' + SEAL, "secret_key: give 7 to 128"),
        (b'access_key = "ad min"\nsecret_key = "long-enough"\n' + SEAL, "access_key: give letters"),
        (b'access_key = "admin"\nsecret_key = "with blanks"\n' + SEAL, "secret_key: give letters"),
        (b'acces_key = "admin"\n', "no such key 'acces_key'"),
        (b"#" * 20_000, "more than 16384 bytes"),
        (b'access_key = "admin"\nsecret_key = "long-enough"\nseal_key = "ab"\n', "64 hexadecimal"),
        (b'access_key = "admin"\nsecret_key = "long-enough"\nseal_key = "xy"\n', "64 hexadecimal"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_what_is_wrong(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "access.toml"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(AccessFileUnusable, match=problem) as refused:
        read_access_file(path)
    assert str(refused.value).startswith(str(path))
    assert "long-enough" not in str(refused.value)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    new_access_file(path, "admin")
    for mode in (0o640, 0o604, 0o620, 0o606):
        path.chmod(mode)
        with pytest.raises(AccessFileUnusable, match="chmod 600"):
            read_credentials(path)


def test_a_file_that_is_not_there_or_a_folder_is_an_error_in_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(AccessFileUnusable) as refused:
            read_access_file(path)
        assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_an_error_that_names_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(AccessFileUnusable, match=r"none: .* `dledger-mq user create`"):
        read_credentials(tmp_path / "none")
