"""The benchmark of gRPC servers, ended before its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import http2_costs
from bench.__main__ import main
from bench.http2_costs import OURS, Figures


@pytest.mark.parametrize("measured", [(), (OURS,)])
def test_a_signal_leaves_the_rows_that_were_measured(
    measured: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(kind: str, *_: object) -> Figures:
        if kind not in measured:
            raise KeyboardInterrupt
        return Figures(70.0, 80.0, 12_345.0, 5.0)

    monkeypatch.setattr(http2_costs, "_measure", measure)
    monkeypatch.setattr("importlib.metadata.version", {"grpcio": "1.0"}.__getitem__)
    page = tmp_path / "page.md"
    ended = CliRunner().invoke(
        main, ["http2-costs", "--dir", str(tmp_path / "runs"), "--markdown", str(page)]
    )
    assert ended.exit_code == 0, ended.output
    shown = page.read_text()
    assert "stopped before the end" in shown
    assert ("12,345" in shown) == (OURS in measured)
    assert "ours, by the peer's" not in shown
