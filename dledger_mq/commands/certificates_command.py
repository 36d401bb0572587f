"""`dledger-mq certificates`: an authority of one's own, and certificates that it signs."""

import shlex
from datetime import UTC, datetime
from pathlib import Path

import click

from dledger.command_line.options import FOLDER, option
from dledger.command_line.standard_streams import telling_what_is_done
from dledger_mq.clusters.certificate_folder import AUTHORITY, CLIENT, CertificateFolder
from dledger_mq.clusters.group_directory import MAX_GROUPS, MAX_NODES
from dledger_mq.clusters.new_groups import node_names


@click.command("certificates")
@click.argument("path", metavar="FOLDER", type=FOLDER)
@option(
    "--nodes",
    "node_count",
    "How many brokers a group has.",
    type=click.IntRange(1, MAX_NODES),
    default=3,
)
@option(
    "--groups",
    "group_count",
    "How many groups.",
    type=click.IntRange(1, MAX_GROUPS),
    default=1,
)
@option(
    "--host",
    "hosts",
    "Name or IP address of a machine, besides localhost; may be repeated.",
    multiple=True,
    metavar="NAME",
)
@option("--days", "How long the certificates count.", type=click.IntRange(1, 3650), default=365)
def certificates(
    path: Path, node_count: int, group_count: int, hosts: tuple[str, ...], days: int
) -> None:
    """Make an authority, and certificates for brokers, a name server and clients, in FOLDER.

    For development: the key of the authority lies beside the others. docs/security.md says how
    to keep it apart.
    """
    # Loaded here: no other command needs the library that makes certificates.
    from dledger_mq.clusters.development_authority import make_certificates  # noqa: PLC0415

    folder = CertificateFolder(path)
    nodes = [name for group in node_names(group_count, node_count) for name in group]
    made = make_certificates(folder, nodes, hosts, days, datetime.now(UTC))
    counts = "".join(
        f" --{name} {count}"
        for name, count, usual in (("nodes", node_count, 3), ("groups", group_count, 1))
        if count != usual
    )
    shown = shlex.quote(str(path))
    ca, cert, key = (
        shlex.quote(str(one))
        for one in (folder.certificate(AUTHORITY), folder.certificate(CLIENT), folder.key(CLIENT))
    )
    has = f"{path} has certificates of {', '.join(made)}, for {days} days"
    with telling_what_is_done(has):
        click.echo(has)
        click.echo("Whoever has authority-key.pem can make more of them.\n")
        click.echo(f"  dledger-mq up --dir group{counts} --tls-dir {shown}")
        click.echo(
            f"  dledger-mq send Greetings hello --tls-ca {ca} --tls-cert {cert} --tls-key {key}"
        )
