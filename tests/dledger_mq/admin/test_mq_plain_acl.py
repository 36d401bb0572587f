"""RocketMQ 4's `plain_acl.yml`: what is read, what is refused, and what is said of the rest."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_mq.admin.plain_acl import MAX_FILE_BYTES, PlainAcl, PlainAclUnusable, read_plain_acl

# As RocketMQ 4.9 ships it, with what its tools add.
SHIPPED = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 1234567890
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
dataVersion:
  - counter: 3
    timestamp: 1700000000000
"""


def reading(path: Path, content: str | bytes) -> PlainAcl:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(0o600)
    return read_plain_acl(path)


def test_the_shipped_file_is_read_and_what_has_no_like_is_named(tmp_path: Path) -> None:
    found = reading(tmp_path / "plain_acl.yml", SHIPPED)
    plain, admin = found.accounts
    assert (plain.access_key, plain.secret_key, plain.is_admin) == ("RocketMQ", "12345678", False)
    assert (plain.topic_default, plain.group_default) == ((), ("Sub",))
    assert [(one.name, one.actions) for one in plain.topics] == [
        *(("topicA", ()), ("topicB", ("Pub", "Sub")), ("topicC", ("Sub",)))
    ]
    assert (admin.is_admin, admin.topics) == (True, ())
    assert [line.partition(":")[0] for line in found.untranslated] == [
        "globalWhiteRemoteAddresses 10.10.103.*, 192.168.0.*",
        "whiteRemoteAddress of rocketmq2 192.168.1.*",
    ]
    assert all("without a signature" in line for line in found.untranslated)
    assert "12345678" not in repr(found.accounts)


def test_a_file_that_others_can_read_is_read_and_named(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    reading(path, SHIPPED)
    path.chmod(0o644)
    assert any("others can read the file" in line for line in read_plain_acl(path).untranslated)


BOMB = "a: &a [x, x, x, x]\n" + "\n".join(
    f"{chr(98 + at)}: &{chr(98 + at)} [{', '.join(9 * ['*' + chr(97 + at)])}]" for at in range(9)
)
ACCOUNT = "accounts:\n  - accessKey: shop\n    secretKey: long-enough\n"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "give a mapping"),
        ("- a", "give a mapping"),
        ("accounts: x", "accounts: give a list"),
        ("accounts: [x]", "account 1: give a mapping"),
        ("accounts: [", "while parsing"),
        (b"accounts: \xff", "invalid start byte"),
        ("a: \x00", "special characters"),
        (BOMB, "anchors and aliases are not read"),
        ("accounts: *a", "anchors and aliases are not read"),
        ("accounts: !!python/object/apply:os.system [ls]", "is not read: leave it out"),
        ("accounts: !!binary aGVsbG8=", "is not read"),
        ("a: " + 1000 * "[" + 1000 * "]", "more than 6 levels"),
        ("accounts: []\naccounts: []", "a key stands twice"),
        ("? {a: b}\n: c", "unhashable"),
        ("#" * (MAX_FILE_BYTES + 1), "another file"),
        (ACCOUNT + "    admin: maybe", "admin of shop: give true or false"),
        (ACCOUNT + "    admin: [true]", "admin of shop: give true or false"),
        (ACCOUNT + "    topicPerms: {a: PUB}", "topicPerms: give a list of texts"),
        (ACCOUNT + "    topicPerms: [[a]]", "topicPerms: give a list of texts"),
        (ACCOUNT + "    topicPerms: [a=ALL]", "account 1: topicPerms: 'ALL': give DENY, PUB"),
        (ACCOUNT + "    defaultTopicPerm: [PUB]", "defaultTopicPerm: give a text"),
        (ACCOUNT + "  - accessKey: shop\n    secretKey: other-secret", "account 2: accessKey shop"),
        ("accounts:\n  - accessKey: a b\n    secretKey: long-enough", "accessKey 'a b'"),
        ("accounts:\n  - accessKey: shop\n    secretKey: hidden", "secretKey of shop: give 7"),
        ("accounts:\n  - accessKey: shop", "secretKey of shop: give 7"),
        ("accounts:\n  - {}\n  - {}", "account 1: accessKey ''.*; account 2: accessKey ''"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_what_is_wrong(
    tmp_path: Path, content: str | bytes, problem: str
) -> None:
    path = tmp_path / "plain_acl.yml"
    with pytest.raises(PlainAclUnusable, match=problem) as refused:
        reading(path, content)
    text = str(refused.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    assert "long-enough" not in text
    assert "hidden" not in text


def test_a_file_that_is_not_there_is_an_error_in_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(PlainAclUnusable):
            read_plain_acl(path)


def test_what_is_not_known_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    found = reading(tmp_path / "a.yml", ACCOUNT + "    color: red\nversion: 7\n")
    assert [one.access_key for one in found.accounts] == ["shop"]
    assert sorted(found.untranslated) == ["color of shop: no such key", "version: no such key"]


@given(st.text(max_size=200))
def test_whatever_text_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yml"
    with suppress(PlainAclUnusable):
        reading(path, text.encode("utf-8", "surrogatepass"))
