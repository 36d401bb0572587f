"""The commands in docs/security.md make certificates with which a group works."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from dledger.errors import ConfigInvalid
from dledger.network.tls import GroupTls
from dledger.network.tls_config import TlsConfig

PAGE = Path(__file__).parent.parent.parent.parent / "docs" / "security.md"
COMMANDS = re.compile(r"<!-- commands -->\n```bash\n(.*?)```\n", re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("security")
    blocks = COMMANDS.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) == 3
    for block in blocks:
        subprocess.run(["sh", "-eu", "-c", block], cwd=made, check=True, capture_output=True)
    return made


def certificate(folder: Path, name: str, authorities: str) -> GroupTls:
    return GroupTls(
        TlsConfig(
            certificate=folder / f"{name}.pem",
            key=folder / f"{name}-key.pem",
            authorities=folder / authorities,
        )
    )


@pytest.mark.parametrize("name", ["n0", "n1", "n2", "tool"])
def test_the_certificates_of_the_page_are_believed_by_name(folder: Path, name: str) -> None:
    for authorities in ("authority.pem", "both-authorities.pem"):
        certificate(folder, name, authorities).check_names([name])
    with pytest.raises(ConfigInvalid, match="would not be believed"):
        certificate(folder, name, "next-authority.pem").check_names([name])


def test_the_certificates_of_the_page_stand_the_strictest_check(folder: Path) -> None:
    subprocess.run(
        ["openssl", "verify", "-x509_strict", "-CAfile", "authority.pem", "n0.pem", "tool.pem"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
