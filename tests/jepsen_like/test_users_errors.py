"""Every method that a user gives may raise: the run says which, where, and how to see it again."""

import dataclasses
import re

import pytest
from click.testing import CliRunner

from dledger.state_machine import RetainingMachine, SnapshottingMachine, StateMachine
from jepsen_like import Service
from jepsen_like.__main__ import main
from jepsen_like.chaos.service import Described
from tests.jepsen_like import raising_services
from tests.jepsen_like.raising_services import OfDescribed, OfMachine, OfService

SERVICES = f"{raising_services.__name__}"


def names_in(group: type) -> set[str]:
    return {name for name in vars(group) if not name.startswith("_")}


def methods_of(*kinds: type) -> set[str]:
    return {name for kind in kinds for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        pytest.param(f"{group.__name__}.{name}", error, marks=marks)
        for group in (OfMachine, OfService, OfDescribed)
        for number, name in enumerate(sorted(names_in(group)))
        for error, marks in (
            (raising_services.Broken, ()),
            (SystemExit, pytest.mark.long if number else ()),
        )
    ],
)
def test_a_method_that_raises_is_named_with_its_line_and_its_seed(
    name: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raising_services, "Broken", error)
    words = ["--service", f"{SERVICES}:{name}", "--seeds", "3", "--seed", "4", "--jobs", "1"]
    told = CliRunner().invoke(main, ["simulate", *words, "--shrink-seconds", "0"])
    assert told.exit_code == 1, told.output
    assert isinstance(told.exception, SystemExit)
    method = name.partition(".")[2]
    failure = re.search(rf"^seed (\d), after .*{error.__name__}: as planned.*$", told.output, re.M)
    assert failure is not None, told.output
    assert re.search(rf"\b{method}\b", failure[0]), failure[0]
    line = r'raising_services.py:\d+ in .* `raise Broken\("as planned"\)`'
    assert re.search(line, failure[0])
    again = f"again: jepsen-like simulate --seed {failure[1]} --seeds 1 --service {SERVICES}:{name}"
    assert again in told.output
    assert "Traceback" not in told.output


def test_no_method_that_users_give_is_left_out() -> None:
    methods = methods_of(StateMachine, SnapshottingMachine, RetainingMachine)
    assert methods - {"snapshot_format"} == names_in(OfMachine)
    fields = {field.name for field in dataclasses.fields(Service)}
    assert fields - {"machine", "reads_locally", "described"} == names_in(OfService)
    described = methods_of(Described) - {"model", "model_name", "settings", "explanation"}
    assert described - {"has_invariant", "adapts", "reads_results"} == names_in(OfDescribed) - {
        "generate"
    }
