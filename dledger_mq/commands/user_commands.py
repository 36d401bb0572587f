"""`dledger-mq user ...`: the users and rules of brokers with access control."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import click

from dledger.command_line.ending import CommandFailed
from dledger.command_line.options import FILE, flag, option
from dledger.command_line.standard_streams import say_done, telling_what_is_done
from dledger_mq.admin.plain_acl import REFUSED, import_accounts, read_plain_acl
from dledger_mq.admin.users import Users
from dledger_mq.commands.command_line import (
    changing,
    lines_option,
    nameserver_option,
    print_rows,
    with_client,
)
from dledger_mq.errors import RequestRefused
from remoting.bodies.access import SUBJECT_PREFIX, AclEntry
from remoting.net.access_file import new_access_file, new_credentials_file

Result = TypeVar("Result")

_ADMIN: Final = "admin"


@click.command("access")
@click.argument("path", metavar="FILE", type=FILE)
@option("--admin", "Name of the user that may do everything.", default=_ADMIN)
def access(path: Path, admin: str) -> None:
    """Make FILE, by which brokers and name servers switch access control on.

    All brokers of a group, and the name servers, need this same file: `--access FILE`. Commands
    with `--credentials FILE` are its administrator. Keep a copy: without its seal_key the secrets
    of all users must be given again.
    """
    new_access_file(path, admin)
    say_done(f"{path} has a new secret of {admin}, and the key that seals the secrets of users")


@click.group("user")
def user_commands() -> None:
    """Make, list, change and remove users, and what they may do."""


def ask(question: Callable[[Users], Awaitable[Result]]) -> Result:
    return with_client(lambda client: question(Users(client)))


def change(call: Callable[[Users], Awaitable[Result]]) -> Result:
    with changing():
        return ask(call)


def _store_new_secret(
    name: str,
    path: Path,
    store: Callable[[Users, str], Awaitable[None]],
    *,
    is_there: bool,
) -> None:
    """Write a new secret of a user to a file, and have brokers store it.

    What they would surely refuse is found out before. A file that is written stays, unless they
    refuse and none has the user: a broker may take the secret and its answer be lost, and the
    refusal of a request that was sent again says nothing of the first one. The secret is nowhere
    else.
    """

    async def call(users: Users) -> None:
        if (name in await users.all()) is not is_there:
            wrong = "no user" if is_there else "a user"
            raise CommandFailed(f"there is {wrong} {name}: dledger-mq user list names all")
        credentials = new_credentials_file(path, name)
        is_known = False  # whether a broker has the secret
        try:
            await store(users, credentials.secret_key)
            is_known = True
        except RequestRefused:
            if not is_there and name not in await users.all():
                path.unlink()  # noqa: ASYNC240 - nothing else runs
                is_known = True
            raise
        finally:
            if not is_known:
                click.echo(f"{path} is kept: a broker may have taken the secret in it", err=True)

    change(call)


@user_commands.command("create")
@click.argument("name")
@click.argument("path", metavar="FILE", type=FILE)
@flag("--super", "is_super", "It may do everything.")
@nameserver_option
def create(name: str, path: Path, is_super: bool) -> None:
    """Make user NAME with a new secret, and write both to FILE for its programs."""
    _store_new_secret(
        name,
        path,
        lambda users, secret: users.create(name, secret, is_super=is_super),
        is_there=False,
    )
    say_done(f"{path} has the access_key and the secret_key of {name}")


@user_commands.command("renew")
@click.argument("name")
@click.argument("path", metavar="FILE", type=FILE)
@nameserver_option
def renew(name: str, path: Path) -> None:
    """Give user NAME a new secret, and write both to FILE for its programs.

    The earlier secret no longer counts; connections stay.
    """
    _store_new_secret(
        name, path, lambda users, secret: users.change(name, secret=secret), is_there=True
    )
    say_done(f"{path} has the access_key and the new secret_key of {name}")


@user_commands.command("list")
@lines_option
@nameserver_option
def list_users(as_json: bool) -> None:
    """Print the users."""
    rows = [
        {"user": user.username, "type": user.user_type, "status": user.user_status}
        for user in ask(lambda users: users.all()).values()
    ]
    print_rows(("user", "type", "status"), rows, as_json)


@user_commands.command("disable")
@click.argument("name")
@nameserver_option
def disable(name: str) -> None:
    """Let user NAME do nothing; what it has open is refused as well."""
    change(lambda users: users.change(name, is_enabled=False))
    say_done(f"user {name} is disabled")


@user_commands.command("enable")
@click.argument("name")
@nameserver_option
def enable(name: str) -> None:
    """Let user NAME do again what its rules say."""
    change(lambda users: users.change(name, is_enabled=True))
    say_done(f"user {name} is enabled")


@user_commands.command("delete")
@click.argument("name")
@nameserver_option
def delete(name: str) -> None:
    """Remove user NAME and its rules."""
    change(lambda users: users.delete(name))
    say_done(f"user {name} is removed")


@user_commands.command("allow")
@click.argument("name")
@click.argument("resource")
@click.argument("actions")
@option("--from", "sources", "Only from this address or network; may be repeated.", multiple=True)
@flag("--deny", "is_denied", "Refuse it instead.")
@nameserver_option
def allow(
    name: str, resource: str, actions: str, sources: tuple[str, ...], is_denied: bool
) -> None:
    """Let user NAME do ACTIONS on RESOURCE.

    ACTIONS are All, or some of Pub,Sub,Create,Update,Delete,Get,List. RESOURCE is Topic:NAME,
    Group:NAME, Cluster:NAME, the beginning of a name and *, or * alone. The rule that fits best
    counts, and replaces an earlier one for the same resource.
    """
    decision = "Deny" if is_denied else "Allow"
    rule = AclEntry(resource, (actions,), sources, decision)
    change(lambda users: users.put_rule(name, rule))
    say_done(f"{decision} {name}: {actions} on {resource}")


@user_commands.command("forget")
@click.argument("name")
@click.argument("resource")
@nameserver_option
def forget(name: str, resource: str) -> None:
    """Take the rule for RESOURCE from user NAME."""
    change(lambda users: users.delete_rule(name, resource))
    say_done(f"user {name} has no rule for {resource}")


@user_commands.command("rules")
@click.argument("name", required=False)
@lines_option
@nameserver_option
def rules(name: str | None, as_json: bool) -> None:
    """Print the rules of user NAME, or of all users."""
    rows = [
        {
            "user": acl.subject.removeprefix(SUBJECT_PREFIX),
            "policy": policy.policy_type,
            "resource": entry.resource,
            "actions": ",".join(entry.actions),
            "from": ",".join(entry.source_ips) or "anywhere",
            "decision": entry.decision,
        }
        for acl in ask(lambda users: users.rules())
        if name in (None, acl.subject.removeprefix(SUBJECT_PREFIX))
        for policy in acl.policies
        for entry in policy.entries
    ]
    print_rows(("user", "policy", "resource", "actions", "from", "decision"), rows, as_json)


@user_commands.command("import")
@click.argument("path", metavar="FILE", type=FILE)
@flag("--dry-run", "Say what would be made, and change nothing.")
@flag("--overwrite", "Give users that are there the secrets and the rules of the file instead.")
@lines_option
@nameserver_option
def import_plain_acl(path: Path, dry_run: bool, overwrite: bool, as_json: bool) -> None:
    """Make users of the accounts in FILE, the plain_acl.yml of RocketMQ 4.

    Each gets rules that grant the same. What has no like here is named on standard error; secrets
    are never printed.
    """
    found = read_plain_acl(path)
    outcomes = change(
        lambda users: import_accounts(users, found.accounts, overwrites=overwrite, is_dry=dry_run)
    )
    rows = []
    for account in found.accounts:
        user = {
            "user": account.access_key,
            "type": "Super" if account.is_admin else "Normal",
            "outcome": outcomes[account.access_key],
        }
        rules = [
            {
                "policy": policy.policy_type,
                "resource": entry.resource,
                "actions": ",".join(entry.actions),
                "decision": entry.decision,
            }
            for policy in account.policies(is_whole=True)
            for entry in policy.entries
        ]
        rows += [{**user, **rule} for rule in rules or [{}]]
    columns = ("user", "type", "policy", "resource", "actions", "decision", "outcome")
    with telling_what_is_done("nothing is changed" if dry_run else "the accounts are imported"):
        print_rows(columns, rows, as_json)
    for line in found.untranslated:
        click.echo(f"not translated: {line}", err=True)
    if any(one.startswith(REFUSED) for one in outcomes.values()):
        raise SystemExit(1)
