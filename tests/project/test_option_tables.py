"""The pages of servers name each of their options."""

from pathlib import Path

import click
import pytest

from broker.broker_command import broker
from broker.log.entry import FORMAT_VERSION
from nameserver.nameserver_command import main as nameserver
from proxy.proxy_command import main as proxy

DOCS = Path(__file__).parent.parent.parent / "docs"


@pytest.mark.parametrize(
    ("command", "pages"),
    [
        (broker, ["broker.md"]),
        (proxy, ["rocketmq-5-clients.md", "run-as-a-service.md", "broker.md"]),
        (nameserver, ["nameserver.md", "run-as-a-service.md", "security.md", "broker.md"]),
    ],
    ids=["broker", "proxy", "nameserver"],
)
def test_the_pages_of_a_server_name_each_of_its_options(
    command: click.Command, pages: list[str]
) -> None:
    told = "\n".join((DOCS / page).read_text(encoding="utf-8") for page in pages)
    options = [each for each in command.params if isinstance(each, click.Option)]
    named = [max(each.opts + each.secondary_opts, key=len) for each in options if not each.hidden]
    assert len(named) > 10
    assert not [option for option in named if f"`{option}" not in told]


def test_the_page_of_operators_names_the_newest_format_of_a_log_of_brokers() -> None:
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    assert f"| log of a group of brokers | {FORMAT_VERSION} |" in page
