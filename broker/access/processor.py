"""Answers operators' requests about users and rules (3001 to 3010), and proxies' (31002).

Source: RocketMQ's AdminBrokerProcessor and access control 2.0.
"""

from broker.access.commands import AccessCommand, PutRules, PutUser
from broker.access.guard import ACCESS_GUARD
from broker.access.rules import Policy, Rule, policy_of, rule_of
from broker.access.secret_seal import SealBroken
from broker.access.state import ACCESS, User
from broker.access.user_changes import USER_CHANGES, user_name
from broker.errors import RequestRefused
from broker.serving.needs import Action, Kind, Need
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from remoting.bodies.access import (
    DISABLED,
    ENABLED,
    NORMAL,
    SUBJECT_PREFIX,
    SUPER,
    AclEntry,
    AclInfo,
    AclPolicy,
    UserInfo,
    read_acl,
    read_needs,
    read_user,
)
from remoting.bodies.pieces import pieces
from remoting.net.answering import Steps
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json


class AccessProcessor:
    """Changes users and rules through the log, and tells them.

    A secret is told to super users only, as RocketMQ's proxies and `copyUser` need it.
    """

    def __init__(self, parts: Parts) -> None:
        self._access = parts.state[ACCESS]
        self._guard = parts[ACCESS_GUARD]
        self._changes = parts[USER_CHANGES]

    def check_access(self, origin: Origin, command: Command) -> Command:
        """Answer whether the request's user may do all of some things (31002).

        A proxy asks it before it tells a client anything by itself.

        Raises RequestRefused: (16) it may not, (29) a kind or an action is unknown.
        """
        try:
            needs = [
                Need(frozenset(map(Action, asked.actions)), Kind(asked.kind), asked.name)
                for asked in read_needs(command)
            ]
        except ValueError as error:
            raise RequestRefused.invalid(f"needs: {error}") from None
        self._guard.require(origin, command, needs)
        return command.reply()

    def create_user(self, origin: Origin, command: Command) -> None:
        """Create a user (3001).

        Raises RequestRefused: (1) access control is off, (16) only a super user makes another one,
        (29) a name, a secret or a word is not allowed.
        """
        asked = _named(command)
        if not asked.password:
            raise RequestRefused.invalid("password: a new user needs one")
        self._put_user(origin, command, asked, is_new=True)

    def update_user(self, origin: Origin, command: Command) -> None:
        """Change a user (3002); what is not given stays. Raises as `create_user`."""
        self._put_user(origin, command, _named(command), is_new=False)

    def _put_user(self, origin: Origin, command: Command, asked: UserInfo, *, is_new: bool) -> None:
        is_super = _truth(asked.user_type, SUPER, NORMAL, "userType")
        is_enabled = _truth(asked.user_status, ENABLED, DISABLED, "userStatus")
        name, changes = asked.username, self._changes
        changes.begin_put(origin, command, name, makes_super=bool(is_super))
        secret = changes.sealed(name, asked.password) if asked.password else None
        put = PutUser(name, secret, is_super, is_enabled, only_if=not is_new)
        changes.submit([put], origin, command)

    def delete_user(self, origin: Origin, command: Command) -> None:
        """Delete a user with its rules (3003). Raises as `create_user`."""
        self._changes.delete_user(origin, command, user_name(command.text("username")))

    def get_user(self, origin: Origin, command: Command) -> Command:
        """Tell one user (3004); nothing if there is none."""
        name = command.text("username")
        user = self._access.users.get(name)
        if user is None:
            return command.reply()
        told = self._told(name, user, with_secret=self._changes.is_super(origin, command))
        return command.reply(body=compact_json(told.to_json()).encode())

    def list_users(self, _origin: Origin, command: Command) -> Steps:
        """Tell all users whose names have a text in them (3005), without secrets."""
        wanted = command.fields.get("filter", "")
        rows: list[str] = []
        for piece in pieces(sorted(self._access.users.items())):
            for name, user in piece:
                if wanted in name:
                    rows.append(compact_json(self._told(name, user, with_secret=False).to_json()))
            yield
        return command.reply(body=f"[{','.join(rows)}]".encode())

    def put_rules(self, origin: Origin, command: Command) -> None:
        """Give a user rules (3006, 3007). Rules for other resources stay.

        Raises RequestRefused: (1) access control is off, or no such user, (16) only a super user
        changes the rules of another one, (29) a rule or a name is not allowed.
        """
        self._changes.check_on()
        asked = read_acl(command)
        name = _subject(command.fields.get("subject") or asked.subject)
        self._changes.check_not_super_of_others(origin, command, name)
        commands: list[AccessCommand] = []
        for policy in asked.policies:
            rules = [
                rule_of(entry.resource, entry.actions, entry.source_ips, entry.decision)
                for entry in policy.entries
            ]
            if rules:
                commands.append(PutRules(name, policy_of(policy.policy_type), rules))
        if not commands:
            raise RequestRefused.invalid("no rule is given")
        self._changes.submit(commands, origin, command)

    def delete_rules(self, origin: Origin, command: Command) -> None:
        """Take rules from a user (3008): those for a resource, of a policy, or all.

        Raises as `put_rules`.
        """
        self._changes.delete_rules(
            origin,
            command,
            _subject(command.text("subject")),
            command.fields.get("policyType", ""),
            command.fields.get("resource", ""),
        )

    def get_rules(self, _origin: Origin, command: Command) -> Command:
        """Tell the rules of a user (3009); nothing if it has none."""
        name = _subject(command.text("subject"))
        if name not in self._access.keys:
            return command.reply()
        return command.reply(body=compact_json(self._rules(name, "").to_json()).encode())

    def list_rules(self, _origin: Origin, command: Command) -> Steps:
        """Tell the rules of all users, or of those whose names and resources have texts in them
        (3010).
        """
        wanted = command.fields.get("subjectFilter", "").removeprefix(SUBJECT_PREFIX)
        resource = command.fields.get("resourceFilter", "")
        rows: list[str] = []
        for name in sorted(self._access.keys):
            told = self._rules(name, resource) if wanted in name else None
            if told is not None and told.policies:
                rows.append(compact_json(told.to_json()))
                yield  # a user may have many
        return command.reply(body=f"[{','.join(rows)}]".encode())

    def _rules(self, name: str, resource_filter: str) -> AclInfo:
        policies = []
        for policy in Policy:
            entries = tuple(
                acl_entry(rule)
                for rule in self._access.rules_of(name, policy)
                if resource_filter in rule.resource
            )
            if entries:
                policies.append(AclPolicy(policy, entries))
        return AclInfo(SUBJECT_PREFIX + name, tuple(policies))

    def _told(self, name: str, user: User, *, with_secret: bool) -> UserInfo:
        secret, seal = "", self._guard.seal
        if with_secret and seal is not None:
            try:
                secret = seal.opened(name, user.sealed).decode()
            except SealBroken as error:
                raise RequestRefused.failed(str(error)) from None
        kind = SUPER if user.is_super else NORMAL
        return UserInfo(name, secret, kind, ENABLED if user.is_enabled else DISABLED)


def _named(command: Command) -> UserInfo:
    """Read a user. Raises RequestRefused (29), BodyMalformed."""
    asked = read_user(command)
    name = user_name(command.fields.get("username") or asked.username)
    return UserInfo(name, asked.password, asked.user_type, asked.user_status)


def _subject(subject: str) -> str:
    """Return the user of a subject. Raises RequestRefused (29)."""
    if not subject.startswith(SUBJECT_PREFIX):
        raise RequestRefused.invalid(f"subject {subject!r:.80}: give {SUBJECT_PREFIX}name")
    return user_name(subject.removeprefix(SUBJECT_PREFIX))


def _truth(word: str, true: str, false: str, what: str) -> bool | None:
    """Read one of two words, whatever its case; None for none. Raises RequestRefused (29)."""
    if not word:
        return None
    if word.lower() not in (true.lower(), false.lower()):
        raise RequestRefused.invalid(f"{what} {word!r:.40}: give {true} or {false}")
    return word.lower() == true.lower()


def acl_entry(rule: Rule) -> AclEntry:
    sources = tuple(filter(None, rule.sources.split(",")))
    return AclEntry(rule.resource, tuple(rule.actions.split(",")), sources, rule.decision)
