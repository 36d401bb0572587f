"""A certificate that ends soon is told of, and counts more once it has ended."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from dledger import NodeConfig, open_node
from dledger.commands.group_alarms import Severity, group_alarms
from dledger.config import NodeConfig as Config
from dledger.free_ports import free_addresses
from dledger.metrics.exposition import rendered
from dledger.network.tls_config import TlsConfig
from dledger.node.member_alarms import CERTIFICATE_ENDED, certificate_alarms
from dledger.state_machine import LogOnly
from dledger.status import CERTIFICATE_ENDS
from tests.remoting.net.certificates import authority, signed

DAY_S = 24 * 3600
ENDS = datetime(2026, 12, 24, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("left_s", "kind", "text"),
    [
        (14 * DAY_S + 1, None, ""),
        (14 * DAY_S, CERTIFICATE_ENDS, "ends in 14 days, on 2026-12-24: renew it, and send SIGHUP"),
        (DAY_S - 1, CERTIFICATE_ENDS, "ends in 0 days, on 2026-12-24"),
        (0, CERTIFICATE_ENDED, "has ended on 2026-12-24, and nobody believes it"),
        (-9 * DAY_S, CERTIFICATE_ENDED, "has ended on 2026-12-24"),
    ],
)
def test_the_last_fourteen_days_of_a_certificate_are_an_alarm(
    left_s: float, kind: str | None, text: str
) -> None:
    found = certificate_alarms("n0", ENDS, ENDS - left_s)
    assert [one.kind for one in found] == ([] if kind is None else [kind])
    assert all(f"the certificate of n0 {text}" in one.text for one in found)
    assert certificate_alarms("n0", None, ENDS) == []


def test_a_certificate_that_ends_is_a_warning_and_one_that_has_ended_is_critical() -> None:
    told = [
        {"kind": CERTIFICATE_ENDS, "member": "n0", "text": "n0 ends"},
        {"kind": CERTIFICATE_ENDED, "member": "n1", "text": "n1 ended"},
    ]
    found = {one.text: one.severity for one in group_alarms({"n0": {"alarms": told}})}
    assert found["n0 ends"] == Severity.WARNING
    assert found["n1 ended"] == Severity.CRITICAL


async def test_a_node_tells_when_its_certificate_ends(tmp_path: Path) -> None:
    (address,) = free_addresses(1)
    files = signed("n0", days=13)
    tls = TlsConfig(certificate=files.certificate, key=files.key, authorities=authority().path)
    config: Config = NodeConfig(
        group="group", node_id="n0", peers={"n0": address}, data_dir=tmp_path, tls=tls, new=True
    )
    async with open_node(config, LogOnly()) as node:
        status = node.status()
        assert [(one.kind, one.is_warning) for one in status.alarms] == [(CERTIFICATE_ENDS, True)]
        assert status.certificate_ends_at is not None
        shown = b"".join(rendered([(status, node.tally)])).decode()
        (row,) = [
            line
            for line in shown.splitlines()
            if line.startswith("dledger_certificate_expiry_timestamp_seconds{")
        ]
        assert float(row.rpartition(" ")[2]) == status.certificate_ends_at
        assert 'dledger_alarm{group="group",kind="certificate_ends"' in shown
