"""Writes the table of docs/request-codes.md: `python -m docs._ext.request_codes`.

What is answered is asked of a broker that runs for a moment, and of a name server's table.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from broker.config import BrokerConfig
from broker.server import Broker, Surroundings, run_broker
from broker.services import SERVICES
from broker.serving.not_here import NOT_HERE
from dledger.free_ports import free_ports
from docs._ext.message_tables import table
from nameserver.processors import Processors
from nameserver.routes import RouteTable
from nameserver.settings import SettingTable
from remoting.net.address import Address
from remoting.wire.codes import RequestCode

PAGE: Final = Path(__file__).parents[1] / "request-codes.md"

_BEGIN: Final = "<!-- made by docs/_ext/request_codes.py -->\n"
_END: Final = "<!-- end -->\n"

# What is to be known of an answer besides where it comes from.
_NOTES: Final = {
    RequestCode.CLEAN_UNUSED_TOPIC: "nothing is left to clean: queues go with their topic",
    RequestCode.GET_TIMER_METRICS: "one number for all topics",
    RequestCode.GET_BROKER_HA_STATUS: "offsets are indexes of entries in the log",
    RequestCode.UPDATE_NAMESRV_CONFIG: "refused (16): restart it with other settings",
}


def answered_by(broker: Broker) -> Mapping[int, str]:
    """The feature's folder for each code that a broker answers."""
    return {
        int(code): service.__module__.split(".")[1]
        for service in SERVICES
        for code in service(broker.parts).handlers
    }


def rows_of(folders: Mapping[int, str]) -> str:
    """The table.

    Args:
        folders: of the codes that a broker answers.
    """
    of_nameservers = Processors(RouteTable(), SettingTable()).table.codes()
    rows: list[tuple[str, ...]] = []
    for code in RequestCode:
        places = [f"broker, `{folders[code]}`"] if code in folders else []
        places += ["name server"] if code in of_nameservers else []
        why = _NOTES.get(code, "") if places else NOT_HERE.get(code, "")
        rows.append((str(int(code)), code.name, "; ".join(places) or "no", why))
    return table(("code", "name", "answered by", ""), rows)


def page_with(text: str, rows: str) -> str:
    """The page with this table."""
    head, _, rest = text.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    return f"{head}{_BEGIN}\n{rows.strip()}\n\n{_END}{tail}"


async def _folders() -> Mapping[int, str]:
    """What a broker answers that runs for a moment."""
    clients, log = free_ports(2)
    with TemporaryDirectory() as directory:
        config = BrokerConfig(
            group="broker",
            node_id="n0",
            peers={"n0": f"127.0.0.1:{log}"},
            listen=Address("127.0.0.1", clients),
            directory=Path(directory),
        )
        async with trio.open_nursery() as nursery:
            run = partial(
                run_broker, config, Surroundings(lambda: 0, 1), lambda _line, /, **_: None
            )
            folders = answered_by(await nursery.start(run))
            nursery.cancel_scope.cancel()
    return folders


if __name__ == "__main__":
    found = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page_with(found, rows_of(trio.run(_folders))), encoding="utf-8")
