"""Answers requests of RocketMQ 4's tools about accounts (50 to 52, and 54).

An account is a user and its rules. Addresses that version 4 does not check (`whiteRemoteAddress`,
and 53 for all accounts) are refused: here each request is signed.
"""

from broker.access.commands import AccessCommand, DeleteRules, PutRules, PutUser, why_not
from broker.access.processor import acl_entry
from broker.access.rules import Policy, policy_of, rule_of
from broker.access.state import ACCESS
from broker.access.user_changes import USER_CHANGES, user_name
from broker.errors import RequestRefused
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from remoting.bodies.access import AclEntry
from remoting.bodies.plain_access import PlainAccount, account_to_json, read_account
from remoting.bodies.topic_config import DataVersion
from remoting.net.answering import Steps
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json


class PlainAccounts:
    def __init__(self, parts: Parts) -> None:
        self._access = parts.state[ACCESS]
        self._changes = parts[USER_CHANGES]
        self._config = parts.config

    def put(self, origin: Origin, command: Command) -> None:
        """Create an account, or change it (50). What is not given stays; a list of permissions
        replaces the one before, and `admin` is always taken over, as in version 4.

        Raises:
            RequestRefused: as `AccessProcessor.create_user`; and (29) it has an address that is not
                to be checked.
            FieldMissing, BodyMalformed: it is no account.
        """
        asked = read_account(command)
        name = user_name(asked.access_key)
        if asked.white_address:
            raise RequestRefused.invalid(
                "whiteRemoteAddress: every request is signed here, from whatever address; leave "
                "it out, and limit a user by `dledger-mq user allow --from`"
            )
        self._changes.begin_put(origin, command, name, makes_super=asked.is_admin)
        is_new = name not in self._access.users
        if is_new and not asked.secret_key:
            raise RequestRefused.invalid("secretKey: a new account needs one")
        secret = self._changes.sealed(name, asked.secret_key) if asked.secret_key else None
        put = PutUser(name, secret, asked.is_admin, is_enabled=None, only_if=not is_new)
        if (why := why_not(self._access, put)) is not None:
            raise RequestRefused.failed(why)
        commands: list[AccessCommand] = [put]
        for policy in asked.policies(is_whole=False):
            rules = [
                rule_of(one.resource, one.actions, one.source_ips, one.decision)
                for one in policy.entries
            ]
            commands.append(PutRules(name, policy_of(policy.policy_type), rules))
        commands += self._left(name, asked)
        self._changes.submit_unchecked(commands, origin, command)

    def _left(self, name: str, asked: PlainAccount) -> list[AccessCommand]:
        """Delete the user's rules for names that a new list leaves out."""
        stay = {f"Topic:{one.name}" for one in asked.topics}
        stay |= {f"Group:{one.name}" for one in asked.groups}
        prefixes = [
            f"{kind}:"
            for kind, named in (("Topic", asked.topics), ("Group", asked.groups))
            if named
        ]
        return [
            DeleteRules(name, policy, resource)
            for _, policy, resource in self._access.keys.get(name, ())
            if resource.startswith(tuple(prefixes))
            and resource not in stay
            and not resource.endswith(":*")
        ]

    def delete(self, origin: Origin, command: Command) -> None:
        """Delete an account (51). Raises RequestRefused, FieldMissing."""
        self._changes.delete_user(origin, command, user_name(command.text("accessKey")))

    def tell_version(self, _origin: Origin, command: Command) -> Command:
        """Tell how many changes users and rules have had (52)."""
        version = DataVersion(self._access.access_changes).to_json()
        fields = {
            "version": compact_json(version),
            "allAclFileVersion": compact_json({"the log": version}),
            "brokerName": self._config.group,
            "brokerAddr": str(self._config.address),
            "clusterName": self._config.cluster,
        }
        return command.reply(fields=fields)

    def tell(self, _origin: Origin, command: Command) -> Steps:
        """Tell all accounts (54), without secrets, and without rules that version 4 cannot say."""
        rows: list[str] = []
        for name, user in sorted(self._access.users.items()):
            account = account_to_json(
                name,
                is_admin=user.is_super,
                own=self._entries(name, Policy.CUSTOM),
                default=self._entries(name, Policy.DEFAULT),
            )
            rows.append(compact_json(account))
            yield  # a user may have many rules
        body = f'{{"globalWhiteAddrs":[],"plainAccessConfigs":[{",".join(rows)}]}}'
        return command.reply(body=body.encode())

    def _entries(self, name: str, policy: Policy) -> list[AclEntry]:
        return [acl_entry(rule) for rule in self._access.rules_of(name, policy)]
