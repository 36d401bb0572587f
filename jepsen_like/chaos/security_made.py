"""Makes certificates and the file of access control for the servers of a run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from dledger_mq.clusters.certificate_folder import CertificateFolder
from dledger_mq.clusters.development_authority import make_certificates
from jepsen_like.chaos.brokers.security_files import SecurityFiles
from jepsen_like.chaos.nemeses.certificate_faults import DAYS
from jepsen_like.chaos.wiring import Wiring
from remoting.net.access_file import new_access_file
from remoting.net.address import parse_address


def make_security(
    files: SecurityFiles, names: Sequence[str], wiring: Wiring, now: datetime
) -> None:
    """Make certificates for members of these names, wherever they are, and for all others."""
    hosts = {parse_address(one.clients).host for one in wiring.addresses.values()}
    make_certificates(CertificateFolder(files.certificates), names, sorted(hosts), DAYS, now)
    new_access_file(files.access, "admin")
