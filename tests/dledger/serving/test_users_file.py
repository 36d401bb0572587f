"""The file of users: what is wrong with it is one line, which shows no secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import dledger
from dledger.serving.users_file import MAX_USERS, UsersFile
from dledger.wire.rights import Right

SECRET = "a-secret-that-nobody-sees"
GOOD = f"""
member_secrets = ["{SECRET}"]

[users.ann]
secret = "{SECRET}"
rights = ["read", "append"]

[users."tool.example.org"]
secret = "{SECRET}"
rights = []
"""


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "users.toml"
    path.write_text(text)
    os.chmod(path, mode)
    return path


def test_a_file_says_who_may_do_what(tmp_path: Path) -> None:
    users = UsersFile(written(tmp_path, GOOD), speaks_tls=False)
    assert users.asks
    assert users.member_secrets == (SECRET.encode(),)
    granted = {right for right in Right if users.allows("ann", right, "10.0.0.1")}
    assert granted == {Right.READ, Right.APPEND}
    assert users.knows("tool.example.org")
    assert not any(users.allows("tool.example.org", right, "") for right in Right)
    assert not users.knows("bob")
    assert users.secret_of("bob") is None
    assert not any(users.allows("bob", right, "") for right in Right)
    assert SECRET not in repr(users)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[users", "this is not TOML"),
        ("\xff", "this is not TOML"),
        ("members = []", "no such key 'members': give mode, member_secrets, users"),
        ("mode = 'off'", "mode: give 'enforcing' or 'permissive'"),
        ("mode = ['enforcing']", "mode: give 'enforcing'"),
        ("", "member_secrets: is missing: without TLS"),
        ("member_secrets = []", "member_secrets: is missing: without TLS"),
        (f"member_secrets = '{SECRET}'", "member_secrets: give a list of 1 to 4 texts"),
        ("member_secrets = ['short']", "member_secrets: give a text of 16 to 128 characters"),
        ("member_secrets = [12345678901234567890]", "member_secrets: give a text of 16"),
        ("member_secrets = ['twenty characters of it']", "without blanks"),
        (GOOD.replace("[users.ann]", "[users.'']"), "give a name of 1 to 253 characters"),
        (GOOD.replace("[users.ann]", "[users.'a b']"), "without blanks"),
        (GOOD.replace("[users.ann]", "[users.'\u00e4']"), "letters, digits and signs of ASCII"),
        (GOOD.replace("[users.ann]", f"[users.{'x' * 254}]"), "give a name of 1 to 253 characters"),
        (GOOD.replace('rights = ["read", "append"]', ""), "[users.ann] rights: give a list of"),
        (GOOD.replace('["read", "append"]', '"read"'), "[users.ann] rights: give a list of"),
        (GOOD.replace('"read"', '"all"'), "[users.ann] rights: 'all' is none of append, read"),
        (GOOD.replace('"read"', "7"), "[users.ann] rights: 7 is none of append, read"),
        (GOOD.replace('"read"', '["read"]'), "[users.ann] rights: ['read'] is none of"),
        (GOOD.replace("rights = []", "right = []"), "no such key 'right': give secret, rights"),
        (GOOD.replace(f'secret = "{SECRET}"\nrights = []', "rights = []"), "secret is missing"),
        (GOOD.replace(f'ann]\nsecret = "{SECRET}"', "ann]\nsecret = 'short'"), "secret: give a te"),
        (f"member_secrets = ['{SECRET}']\nusers = 5", "users: give a table for each user"),
        (f"member_secrets = ['{SECRET}']\n[users]\nann = 5", "[users.ann]: give a table with"),
    ],
)
def test_what_is_wrong_with_it_is_one_line_without_a_secret(
    tmp_path: Path, text: str, said: str
) -> None:
    path = written(tmp_path, text)
    if text == "\xff":
        path.write_bytes(b"\xff")
    with pytest.raises(dledger.ConfigInvalid) as refused:
        UsersFile(path, speaks_tls=False)
    line = str(refused.value)
    assert line.startswith(f"users: {path}")
    assert said in line
    assert "\n" not in line
    assert SECRET not in line
    assert "short" not in line


def test_others_may_not_read_it_and_it_is_not_large(tmp_path: Path) -> None:
    for mode in (0o640, 0o604, 0o620, 0o601):
        with pytest.raises(dledger.ConfigInvalid, match="chmod 600"):
            UsersFile(written(tmp_path, GOOD, mode), speaks_tls=False)
    with pytest.raises(dledger.ConfigInvalid, match="another file"):
        UsersFile(written(tmp_path, "#" * (8 << 20) + "#"), speaks_tls=False)
    with pytest.raises(dledger.ConfigInvalid, match="No such file"):
        UsersFile(tmp_path / "none", speaks_tls=False)
    more = "".join(f"[users.u{number}]\nrights = []\n" for number in range(MAX_USERS + 1))
    with pytest.raises(dledger.ConfigInvalid, match="10000 at most"):
        UsersFile(written(tmp_path, more), speaks_tls=True)


def test_with_tls_certificates_do_for_secrets(tmp_path: Path) -> None:
    users = UsersFile(written(tmp_path, "[users.ann]\nrights = ['read']"), speaks_tls=True)
    assert users.member_secrets == ()
    assert users.knows("ann")
    assert users.secret_of("ann") is None


def test_the_file_on_the_page_can_be_used(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
    block = page.partition("<!-- users -->\n```toml\n")[2].partition("```")[0]
    users = UsersFile(written(tmp_path, block), speaks_tls=True)
    assert users.allows("orders", Right.APPEND, "")
    assert users.allows("tool", Right.LEAD, "")
    assert users.secret_of("tool") is None
    with pytest.raises(dledger.ConfigInvalid, match=r"\[users.tool\]: secret is missing"):
        UsersFile(written(tmp_path, block), speaks_tls=False)


def test_credentials_are_those_of_dledger_mq_and_show_no_secret(tmp_path: Path) -> None:
    path = written(tmp_path, f'access_key = "ann"\nsecret_key = "{SECRET}"\nseal_key = "00"')
    found = dledger.read_credentials(path)
    assert (found.user, found.secret) == ("ann", SECRET)
    assert SECRET not in repr(found)
    for text, said in (
        ('access_key = "ann"', "secret_key is missing"),
        ('access_key = 7\nsecret_key = "x"', "access_key is missing, or no text"),
        ('access_key = "a b"\nsecret_key = "x"', "credentials.user: .*without blanks"),
        ('access_key = "ann"\nsecret_key = ""', "credentials.secret: .*1 to 128 characters"),
        ('user = "ann"', "no such key 'user'"),
    ):
        with pytest.raises(dledger.ConfigInvalid, match=said) as refused:
            dledger.read_credentials(written(tmp_path, text))
        assert str(path) in str(refused.value)
    with pytest.raises(dledger.ConfigInvalid, match="credentials: a tuple: give"):
        dledger.GroupClient("g", "n0=127.0.0.1:1", None, ("ann", SECRET))  # type: ignore[arg-type]
