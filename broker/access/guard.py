"""Authenticates requests, and checks that the rules of their users permit them."""

import hmac
import ipaddress
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from broker.access.rules import Fitting, Policy, is_granted, read_rule
from broker.access.secret_seal import SealBroken, SecretSeal
from broker.access.state import ACCESS, User
from broker.errors import RequestRefused
from broker.serving.needs import Action, Kind, Need
from broker.serving.origin import Origin
from broker.serving.parts import Parts, Shared
from broker.serving.service import Handler
from broker.settings.user_shares import USER_SHARES
from remoting.net.bounded_log import about_client
from remoting.wire.codes import request_name
from remoting.wire.command import Command
from remoting.wire.on_behalf import HOST, USER, Represented, represented_in
from remoting.wire.quoted import quoted
from remoting.wire.signature import ACCESS_KEY, SIGNATURE, Credentials, Signer

_log = logging.getLogger(__name__)
_audit = logging.getLogger("broker.audit")

# The fields that say what a change is about. Bodies are left out: some have secrets.
_TOLD: Final = frozenset(
    {
        *("topic", "group", "groupName", "consumerGroup", "srcGroup", "destGroup"),
        *(
            "username",
            "accessKey",
            "subject",
            "policyType",
            "resource",
            "timestamp",
            "offset",
            "msgId",
        ),
    }
)

# The secret of all unknown users is derived by this label from the key that seals secrets.
_UNKNOWN_USER: Final = b"secret of unknown users"

# Decisions that are remembered, of some 300 bytes each. Clients name topics as they like: more are
# decided anew.
_MAX_REMEMBERED: Final = 20_000


class Caller:
    """A user, and the rules in force for it. Discarded when users or rules change."""

    def __init__(self, name: str, secret: bytes, *, is_super: bool) -> None:
        self.name = name
        self.is_super = is_super
        self.secret = secret
        self.signer = Signer(secret)
        self.own: Sequence[Fitting] = ()
        self.default: Sequence[Fitting] = ()


class AccessGuard:
    """Judges the requests of one member's clients by the users and rules in the log.

    Without a file of access control it grants everything, and costs nothing. The file's own user
    may do everything: it makes the first user, and mends rules that lock all other users out.

    Attributes:
        watchers: called when users or rules have changed, so that what waits is judged again.
        changes: how often they were called.
    """

    def __init__(self, parts: Parts) -> None:
        self._access = parts.state[ACCESS]
        self._shares = parts[USER_SHARES]
        self._cluster = parts.config.cluster
        file = parts.config.access
        self._seal = None if file is None else SecretSeal(file.seal_key)
        self._admin = None if file is None else _administrator(file.admin)
        # Checks the signatures of unknown users, as long as those of known ones: the time for a
        # long body would tell which users there are.
        secret = b"" if file is None else hmac.digest(file.seal_key, _UNKNOWN_USER, "sha256")
        self._unknown = Caller("", secret, is_super=False)
        self._callers: dict[str, Caller | None] = {}
        self._decisions: dict[tuple[str, Need, str], bool] = {}
        self._seen = -1
        # Of the last request, its fields, user and host: a request may be checked more than once.
        self._last: tuple[Mapping[str, str], tuple[Caller, str]] | None = None
        self.watchers: list[Callable[[], None]] = []
        self.changes = 0

    @property
    def is_on(self) -> bool:
        return self._seal is not None

    @property
    def administrator(self) -> str | None:
        """The name of the user in the file, which is not in the log and may do everything."""
        return None if self._admin is None else self._admin.name

    @property
    def seal(self) -> SecretSeal | None:
        return self._seal

    def change_administrator(self, admin: Credentials) -> None:
        """Let another administrator or another secret count from the next request on."""
        self._admin = _administrator(admin)
        self._judge_anew()

    def look(self) -> None:
        """Tell the watchers of a change. Called after each apply."""
        if self._seal is not None and self._seen != self._access.access_changes:
            self._judge_anew()

    def _judge_anew(self) -> None:
        self._forget()
        self.changes += 1
        for watcher in self.watchers:
            watcher()

    def may_speak_for_others(self, name: str | None) -> bool:
        """Return whether the user of this name is a super user, as that of a proxy is."""
        if self._seal is None:
            return True
        caller = None if name is None else self._caller(name)
        return caller is not None and caller.is_super

    def check(self, origin: Origin, command: Command, handler: Handler) -> None:
        """Check a request, and log who asks for a change that others may notice.

        Raises:
            RequestRefused: (16) its user is unknown, its signature is wrong, or no rule grants it.
            FieldMissing, BodyMalformed: it does not say what it is about.
        """
        if self._seal is None:
            return
        caller, host = self._asker(origin, command)
        if not caller.is_super:
            decisions, name = self._decisions, caller.name
            needs = handler.needs(command)
            for need in needs:  # as in `_check_all`, without its cost for each send
                if not decisions.get((name, need, host)):
                    self._check_all(origin, command, needs)
                    break
        if handler.is_audited:
            _audit.info(
                "%s at %s asks for %s: %s",
                quoted(caller.name),
                quoted(asked_from(origin, command)),
                quoted(request_name(command.code)),
                quoted(told_fields(command), 500),
            )

    def require(self, origin: Origin, command: Command, needs: Sequence[Need]) -> None:
        """Check what a request needs that is known only while it is answered. Raises as `check`."""
        if self._seal is None:
            return
        self._check_all(origin, command, needs)

    def caller(self, origin: Origin, command: Command) -> Caller:
        """Return whose request it is: the signer's, or that of whom a super user represents.

        Raises RequestRefused (16).
        """
        return self._asker(origin, command)[0]

    def _asker(self, origin: Origin, command: Command) -> tuple[Caller, str]:
        """Return whose request it is, and from which host. Raises RequestRefused (16)."""
        if self._seen != self._access.access_changes:
            self._forget()
        fields = command.fields
        last = self._last
        if last is not None and last[0] is fields:
            return last[1]
        name = fields.get(ACCESS_KEY, "")
        caller = self._callers.get(name) or self._caller(name)
        if not name or SIGNATURE not in fields:
            raise self._refused(origin, command, "it is not signed: give the client credentials")
        if not (caller or self._unknown).signer.has_signed(command) or caller is None:
            raise self._refused(origin, command, _unproven(name))
        host = origin.peer.host
        if USER in fields and (represented := represented_in(fields)) is not None:
            caller, host = self._represented(origin, command, caller, represented), represented.host
        elif not caller.is_super:
            self._shares.connect(origin, name)
        asker = caller, host
        self._last = fields, asker
        return asker

    def _represented(
        self, origin: Origin, command: Command, proxy: Caller, represented: Represented
    ) -> Caller:
        """Return for whom a proxy asks. Raises RequestRefused (16)."""
        if not proxy.is_super:
            raise self._refused(
                origin,
                command,
                f"{proxy.name} asks on behalf of others, which only super users may",
            )
        if not _is_address(represented.host):
            raise self._refused(origin, command, f"{HOST} is no address of a client")
        if not represented.user:
            raise self._refused(origin, command, "the client has not signed: give it credentials")
        caller = self._caller(represented.user)
        if not represented.is_proven((caller or self._unknown).secret) or caller is None:
            raise self._refused(origin, command, _unproven(represented.user))
        return caller

    def user_of(self, origin: Origin, command: Command) -> str | None:
        """Return the name of who has signed a request; None without access control. Raises
        RequestRefused (16).
        """
        return None if self._seal is None else self.caller(origin, command).name

    def allows(self, user: str | None, host: str, needs: Sequence[Need]) -> bool:
        """Return whether rules grant needs to a user without a request, as for what it is sent."""
        if self._seal is None:
            return True
        caller = None if user is None else self._caller(user)
        return caller is not None and all(self._grants(caller, need, host) for need in needs)

    def later(self, origin: Origin, command: Command, needs: Sequence[Need]) -> Callable[[], bool]:
        """Return what says whether rules still grant needs to who asks, when a request has waited.

        Raises RequestRefused (16): they do not grant them now.
        """
        if self._seal is None:
            return lambda: True
        self._check_all(origin, command, needs)
        caller, host = self._asker(origin, command)
        return partial(self.allows, caller.name, host, needs)

    def secret_of(self, user: str) -> bytes | None:
        """Return the secret of a user that may do something; None for all others."""
        caller = self._caller(user)
        return None if caller is None else caller.secret

    def _check_all(self, origin: Origin, command: Command, needs: Sequence[Need]) -> None:
        caller, host = self._asker(origin, command)
        for need in needs:
            if not self._grants(caller, need, host):
                told = f"{caller.name} lacks {need.shown}"
                raise self._refused(origin, command, f"{caller.name} lacks {need}", told)

    def _grants(self, caller: Caller, need: Need, host: str) -> bool:
        if caller.is_super:
            return True
        key = (caller.name, need, host)
        known = self._decisions.get(key)
        if known is None:
            if need.kind is Kind.CLUSTER:
                need = need._replace(name=self._cluster)
            known = is_granted(caller.own, caller.default, need, host)
            if len(self._decisions) >= _MAX_REMEMBERED:
                self._decisions.clear()
            self._decisions[key] = known
        return known

    def _caller(self, name: str) -> Caller | None:
        """Return a user that may do something; None for all others."""
        if self._seen != self._access.access_changes:
            self._forget()
        if name in self._callers:
            return self._callers[name]
        if self._admin is not None and name == self._admin.name:
            caller: Caller | None = self._admin
        elif name in self._access.users:
            caller = self._made(name, self._access.users[name])
        else:
            return None
        self._callers[name] = caller
        return caller

    def _made(self, name: str, user: User) -> Caller | None:
        if not user.is_enabled or self._seal is None:
            return None
        try:
            secret = self._seal.opened(name, user.sealed)
        except SealBroken as error:
            _log.warning("%s", quoted(error, 300))
            return None
        caller = Caller(name, secret, is_super=user.is_super)
        caller.own = self._read(name, Policy.CUSTOM)
        caller.default = self._read(name, Policy.DEFAULT)
        return caller

    def _read(self, name: str, policy: Policy) -> Sequence[Fitting]:
        """Read the rules. One that this version does not know denies what it may be about: all."""
        found = []
        for rule in self._access.rules_of(name, policy):
            try:
                found.append(read_rule(rule))
            except ValueError as error:
                _log.warning("user %s may do nothing: %s", quoted(name), quoted(error))
                return [Fitting(None, "", True, frozenset(Action), (), False)]
        return found

    def _forget(self) -> None:
        self._seen = self._access.access_changes
        self._callers.clear()
        self._decisions.clear()
        self._last = None

    def _refused(
        self, origin: Origin, command: Command, why: str, told: str | None = None
    ) -> RequestRefused:
        """Log why a request is refused, and return the refusal, with `told` in place of `why`."""
        _log.warning(
            "request %s of %s is not permitted: %s",
            quoted(request_name(command.code)),
            quoted(origin.peer),
            quoted(why, 300),
            extra=about_client(origin.peer.host),
        )
        return RequestRefused.forbidden(f"not permitted: {told or why}")


def _administrator(admin: Credentials) -> Caller:
    return Caller(admin.access_key, admin.secret_key.encode(), is_super=True)


def _unproven(name: str) -> str:
    """The same text for all reasons, so that it does not reveal which users exist."""
    return f"its user {name:.80} is unknown or disabled, or its signature is wrong"


def asked_from(origin: Origin, command: Command) -> str:
    """Return where a request comes from: its peer, or the host of the client that a proxy
    represents.
    """
    represented = represented_in(command.fields)
    return str(origin.peer) if represented is None else represented.host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def told_fields(command: Command) -> str:
    """Return the fields that say what a change is about, which are no secrets."""
    told = sorted(pair for pair in command.fields.items() if pair[0] in _TOLD)
    return " ".join([f"{name}={text:.120}" for name, text in told])


ACCESS_GUARD: Final = Shared("access guard", AccessGuard)
