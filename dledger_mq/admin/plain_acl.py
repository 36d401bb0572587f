"""Reads RocketMQ 4's `plain_acl.yml`, and makes its accounts users with rules.

The file is read as text alone: YAML's other types, anchors and aliases are not needed in it, and
an alias can make a short file a long one.
"""

import stat
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from dledger_mq.admin.users import Users
from dledger_mq.errors import MessagingError, RequestRefused
from remoting.bodies.access import MAX_ENTRIES, AclPolicy
from remoting.bodies.plain_access import PlainAccount, account_of
from remoting.wire.errors import BodyMalformed
from remoting.wire.users import secret_problem, user_problem

# Of 5 000 accounts with some rules each. The reader takes about ten seconds for so much.
MAX_FILE_BYTES: Final = 1024 * 1024

# Accounts, their members, and lists.
_MAX_DEPTH: Final = 6

_WHITE: Final = "globalWhiteRemoteAddresses"
_KEYS: Final = ("accounts", _WHITE, "dataVersion")  # the last is how often tools changed the file
_TEXTS: Final = (
    *("accessKey", "secretKey", "whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm"),
)
_LISTS: Final = ("topicPerms", "groupPerms")
_TRUTHS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

MADE: Final = "made"
REPLACED: Final = "replaced"
KEPT: Final = "kept"
REFUSED: Final = "refused"


class PlainAclUnusable(MessagingError):
    """A file of accounts cannot be read. Nothing was done."""

    path: str
    problem: str
    _template = "{path}: {problem}"


class PlainAcl:
    """The accounts of a file.

    Attributes:
        accounts: in the order of the file.
        untranslated: a line for each thing that has no like here.
    """

    def __init__(self, accounts: Sequence[PlainAccount], untranslated: Sequence[str]) -> None:
        self.accounts = accounts
        self.untranslated = untranslated


def read_plain_acl(path: Path) -> PlainAcl:
    """Read a file. Raises PlainAclUnusable, which names all that is wrong with its accounts."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        is_open = bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))
    except OSError as error:
        raise PlainAclUnusable(str(path), error.strerror or str(error)) from None
    if len(content) > MAX_FILE_BYTES:
        raise PlainAclUnusable(str(path), f"more than {MAX_FILE_BYTES} bytes: another file?")
    try:
        return _read(content, is_open)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise PlainAclUnusable(str(path), " ".join(str(error).split())[:500]) from None


class _PlainLoader(yaml.BaseLoader):
    """Reads texts, lists and mappings, of a bounded depth, each key once."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ValueError("anchors and aliases are not read: write each value out")
        if getattr(event, "tag", None) is not None:
            raise ValueError(f"the tag {event.tag!r:.60} is not read: leave it out")
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ValueError(f"more than {_MAX_DEPTH} levels: this is no file of accounts")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        made = super().construct_mapping(node, deep)
        if len(made) != len(node.value):
            raise ValueError("a key stands twice in a mapping")
        return made


def _read(content: bytes, is_open: bool) -> PlainAcl:
    whole = yaml.load(content, _PlainLoader)
    if not isinstance(whole, dict):
        raise ValueError("give a mapping with accounts")
    untranslated = [f"{key}: no such key" for key in _unknown(whole, _KEYS)]
    if white := _texts(whole, _WHITE):
        untranslated.append(_unsigned(_WHITE, white))
    if is_open:
        untranslated.append("others can read the file, and it has secrets: remove it afterwards")
    accounts: dict[str, PlainAccount] = {}
    problems = []
    values = whole.get("accounts") or []
    if not isinstance(values, list):
        raise ValueError("accounts: give a list")
    for number, value in enumerate(values, 1):
        try:
            account = _account(value, untranslated)
            if account.access_key in accounts:
                raise ValueError(f"accessKey {account.access_key} stands twice")
            accounts[account.access_key] = account
        except ValueError as error:
            problems.append(f"account {number}: {error}")
        except BodyMalformed as error:
            problems.append(f"account {number}: {error.body_name}: {error.reason}")
    if problems:
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise ValueError("; ".join(problems[:5]) + more)
    return PlainAcl(list(accounts.values()), untranslated)


def _account(value: object, untranslated: list[str]) -> PlainAccount:
    if not isinstance(value, dict):
        raise ValueError("give a mapping with accessKey and secretKey")
    texts: dict[str, str] = {}
    for name in _TEXTS:
        text = value.get(name) or ""
        if not isinstance(text, str):
            raise ValueError(f"{name}: give a text")
        texts[name] = text.strip()
    user = texts["accessKey"]
    if (problem := user_problem(user)) is not None:
        raise ValueError(f"accessKey {user!r:.80}: {problem}")
    if (problem := secret_problem(texts["secretKey"])) is not None:
        raise ValueError(f"secretKey of {user}: {problem}")
    truth = value.get("admin") or "false"
    is_admin = _TRUTHS.get(truth.lower()) if isinstance(truth, str) else None
    if is_admin is None:
        raise ValueError(f"admin of {user}: give true or false")
    if texts["whiteRemoteAddress"]:
        what = f"whiteRemoteAddress of {user}"
        untranslated.append(_unsigned(what, [texts["whiteRemoteAddress"]]))
    for key in _unknown(value, (*_TEXTS, *_LISTS, "admin")):
        untranslated.append(f"{key} of {user}: no such key")
    topics, groups = (_texts(value, name) for name in _LISTS)
    return account_of(texts, topics, groups, is_admin)


def _unsigned(what: str, addresses: Sequence[str]) -> str:
    return (
        f"{what} {', '.join(addresses):.200}: RocketMQ 4 takes requests from there without a "
        "signature; here each request is signed, so give these programs a user"
    )


def _unknown(value: Mapping[object, object], known: Sequence[str]) -> list[str]:
    return [f"{key!s:.80}" for key in value if key not in known]


def _texts(value: Mapping[object, object], name: str) -> list[str]:
    found = value.get(name) or []
    if isinstance(found, str):
        found = found.split(",")
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(f"{name}: give a list of texts")
    return [one.strip() for one in found if one.strip()]


async def import_accounts(
    users: Users, accounts: Sequence[PlainAccount], *, overwrites: bool, is_dry: bool
) -> dict[str, str]:
    """Make accounts users with their rules, and return what came of each.

    A user that is there is kept as it is, unless `overwrites`: then it gets the secret and the
    rules of the account, and loses all others. `is_dry`: change nothing. A broker's refusal of one
    account does not keep it from the others. Raises as `Users`, except RequestRefused.
    """
    present = await users.all()
    rules = {acl.subject: acl.policies for acl in await users.rules()} if overwrites else {}
    outcomes = {}
    for account in accounts:
        name = account.access_key
        is_there = name in present
        outcomes[name] = REPLACED if is_there else MADE
        if is_there and not overwrites:
            outcomes[name] = KEPT
        elif not is_dry:
            try:
                await _put(users, account, is_there=is_there)
                if is_there:
                    await _delete_others(users, account, rules.get(f"User:{name}", ()))
            except RequestRefused as error:
                outcomes[name] = f"{REFUSED}: {error}"
    return outcomes


async def _put(users: Users, account: PlainAccount, *, is_there: bool) -> None:
    name, secret = account.access_key, account.secret_key
    if is_there:
        await users.change(name, secret=secret, is_super=account.is_admin)
    else:
        await users.create(name, secret, is_super=account.is_admin)
    for policy in account.policies(is_whole=True):
        for begin in range(0, len(policy.entries), MAX_ENTRIES):
            part = policy.entries[begin : begin + MAX_ENTRIES]
            await users.put_rules(name, AclPolicy(policy.policy_type, part))


async def _delete_others(users: Users, account: PlainAccount, present: Sequence[AclPolicy]) -> None:
    """Delete the rules that a user has and its account does not."""
    stay = {
        (policy.policy_type, entry.resource)
        for policy in account.policies(is_whole=True)
        for entry in policy.entries
    }
    for policy in present:
        for entry in policy.entries:
            if (policy.policy_type, entry.resource) not in stay:
                await users.delete_rule(
                    account.access_key, entry.resource, policy_type=policy.policy_type
                )
