"""Checks that each request shares which changes users and rules, and its way into the log."""

from collections.abc import Callable, Sequence
from typing import Final

from broker.access.commands import AccessCommand, DeleteRules, DeleteUser, SealedSecret, why_not
from broker.access.guard import ACCESS_GUARD
from broker.access.rules import policy_of, rule_of
from broker.access.secret_seal import NONCE_BYTES, SecretSeal
from broker.access.state import ACCESS
from broker.errors import RequestRefused
from broker.formats.state import FORMATS
from broker.log.entry import USERS_VERSION
from broker.log.submissions import submit_commands
from broker.serving.origin import Origin
from broker.serving.parts import Parts, Shared
from broker.serving.replying import replying
from remoting.wire.command import Command
from remoting.wire.users import secret_problem, user_problem

# Random bytes that the leader chooses: so many, and never the same again.
RANDOM_BYTES: Final[Shared[Callable[[int], bytes]]] = Shared("random bytes")


class UserChanges:
    def __init__(self, parts: Parts) -> None:
        self.access = parts.state[ACCESS]
        self._formats = parts.state[FORMATS]
        self._guard = parts[ACCESS_GUARD]
        self._log = parts.log
        self._random = parts[RANDOM_BYTES]

    def begin_put(self, origin: Origin, command: Command, name: str, *, makes_super: bool) -> None:
        """Check whether a request may create or change a user.

        Raises RequestRefused: (1) access control is off, (16) only a super user makes or changes
        another one, (29) it is the administrator.
        """
        self.check_on()
        if name == self._guard.administrator:
            raise RequestRefused.invalid("username: the administrator's secret is in a file")
        if makes_super:
            self._check_super(origin, command)
        self.check_not_super_of_others(origin, command, name)

    def delete_user(self, origin: Origin, command: Command, name: str) -> None:
        """Delete a user with its rules. Raises RequestRefused."""
        self.check_on()
        self.check_not_super_of_others(origin, command, name)
        self.submit([DeleteUser(name)], origin, command)

    def delete_rules(
        self, origin: Origin, command: Command, name: str, policy: str, resource: str
    ) -> None:
        """Delete the rules of a policy for a resource, "" for each one. Raises RequestRefused."""
        self.check_on()
        self.check_not_super_of_others(origin, command, name)
        if resource:
            resource = rule_of(resource, ("All",), (), "Allow").resource
        policy = policy_of(policy) if policy else ""
        self.submit([DeleteRules(name, policy, resource)], origin, command)

    def sealed(self, name: str, secret: str) -> SealedSecret:
        """Seal a new secret. Raises RequestRefused: (1) access control is off, (29) it cannot
        be one.
        """
        problem = secret_problem(secret)
        if problem is not None:
            raise RequestRefused.invalid(f"password: {problem}")
        return SealedSecret(self.check_on().sealed(name, secret, self._random(NONCE_BYTES)))

    def submit(self, commands: Sequence[AccessCommand], origin: Origin, command: Command) -> None:
        """Append changes that the state permits, and answer when they are applied. Raises
        RequestRefused (1).
        """
        for one in commands:
            if (why := why_not(self.access, one)) is not None:
                raise RequestRefused.failed(why)
        self.submit_unchecked(commands, origin, command)

    def submit_unchecked(
        self, commands: Sequence[AccessCommand], origin: Origin, command: Command
    ) -> None:
        """Do the same with changes of which a later one needs an earlier one."""
        submit_commands(self._log, commands, replying(origin, command))

    def check_on(self) -> SecretSeal:
        """Raises RequestRefused (1): without the file, a broker could neither seal nor check."""
        if self._guard.seal is None:
            raise RequestRefused.failed(
                "access control is off: start all brokers of the group with --access FILE"
            )
        if self._formats.format_version < USERS_VERSION:
            raise RequestRefused.failed(
                "not all members have said that they know users: start all of them, and upgrade "
                "those of an earlier version"
            )
        return self._guard.seal

    def is_super(self, origin: Origin, command: Command) -> bool:
        return self._guard.is_on and self._guard.caller(origin, command).is_super

    def _check_super(self, origin: Origin, command: Command) -> None:
        if not self.is_super(origin, command):
            raise RequestRefused.forbidden("not permitted: only a super user changes super users")

    def check_not_super_of_others(self, origin: Origin, command: Command, name: str) -> None:
        user = self.access.users.get(name)
        if user is not None and user.is_super:
            self._check_super(origin, command)


def user_name(name: str) -> str:
    """Return the name of a user. Raises RequestRefused (29)."""
    problem = user_problem(name)
    if problem is not None:
        raise RequestRefused.invalid(f"username {name!r:.80}: {problem}")
    return name


USER_CHANGES: Final = Shared("user changes", UserChanges)
