"""What an append costs: real members, and the counts of their system calls."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from bench.turn_costs import an_append, processor_time
from bench.workload import Workload


@pytest.mark.forked_programs
def test_the_processor_time_of_leader_and_followers_is_measured(tmp_path: Path) -> None:
    load = Workload(in_flight=8, warm_up_s=0.1, measured_s=0.8)
    assert min(processor_time(tmp_path / "load", load)) > 0


def test_counts_of_calls_are_divided_by_the_appends_and_those_of_housekeeping_left_out() -> None:
    leader = {"fdatasync": 200.0, "pwrite64": 400.0, "statfs": 3.0}
    found = an_append(leader, {"fdatasync": 199.0, "read": 100.0})
    assert found.leader == {"fdatasync": 1.0, "pwrite64": 2.0}
    assert found.follower == {"fdatasync": 0.995, "read": 0.5}
    with pytest.raises(click.ClickException, match="no sync"):
        an_append({}, {})
