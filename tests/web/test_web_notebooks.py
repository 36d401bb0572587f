"""The documented notebook and the documented tests on asyncio, run by Jupyter and by pytest; and
the types of all documented web programs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from tests.web.order_services import OrderServices
from tests.web.running_server import PROGRAM_PATH, PROGRAMS, PROJECT, WEB_PYTHON

pytestmark = pytest.mark.long

MAX_S = 240
# Raises in one cell, as a reader may do; the cell is expected to fail.
_TRIO_IN_A_NOTEBOOK = """\
import dledger_mq
async with dledger_mq.Producer("notebook", nameservers="127.0.0.1:9876"):
    pass
"""
_BLOCKING_IN_A_NOTEBOOK = """\
import os
import dledger.blocking
with dledger.blocking.connect(os.environ["ORDERS_LOG"], group="orders") as log:
    print(type(log.append(b"from a cell").index).__name__)
"""


def cells_of(program: str) -> list[str]:
    """The cells of a program in the percent format."""
    return re.split(r"(?m)^# %%.*\n", program)[1:]


def run_cells(cells: list[str], folder: Path, services: OrderServices) -> list[str]:
    """What each cell prints in Jupyter: its standard output, or the error that ended it."""
    notebook = {
        "cells": [
            {
                "cell_type": "code",
                "execution_count": None,
                "metadata": {},
                "outputs": [],
                "id": f"c{i}",
            }
            | {"source": cell}
            for i, cell in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "", "language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path = folder / "cells.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    execute = "from nbclient.cli import main; main()"
    python(["-c", execute, "--allow-errors", "--inplace", str(path)], folder, services)
    printed = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        texts = [
            each.get("text") or f"{each['ename']}: {each['evalue']}" for each in cell["outputs"]
        ]
        printed.append("".join("".join(text) for text in texts).strip())
    return printed


def python(arguments: list[str], folder: Path, services: OrderServices) -> str:
    """Run a module beside the documented programs; what it prints."""
    ended = subprocess.run(
        [WEB_PYTHON, *arguments],
        cwd=folder,
        env={**os.environ, **services.environment, "PYTHONPATH": PROGRAM_PATH},
        capture_output=True,
        text=True,
        timeout=MAX_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_notebook_runs_in_jupyter(services: OrderServices, tmp_path: Path) -> None:
    cells = cells_of((PROGRAMS / "notebook_orders.py").read_text(encoding="utf-8"))
    printed = run_cells(cells, tmp_path, services)
    assert printed == ["", "", "100 messages", "['milk', 'sugar']", ""]


def test_the_forms_in_a_notebook_work_or_name_the_right_one(
    services: OrderServices, tmp_path: Path
) -> None:
    cells = [_TRIO_IN_A_NOTEBOOK, _BLOCKING_IN_A_NOTEBOOK]
    trio_form, blocking_form = run_cells(cells, tmp_path, services)
    assert trio_form.startswith("NotInTrio: ")
    assert "dledger_mq.for_asyncio" in trio_form
    assert blocking_form == "int"


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_tests_on_asyncio_pass_in_one_process_and_in_several(
    processes: str, services: OrderServices, tmp_path: Path
) -> None:
    program = tmp_path / "test_orders.py"
    program.write_text((PROGRAMS / "test_orders.py").read_text(encoding="utf-8"), encoding="utf-8")
    printed = python(["-m", "pytest", "-q", "-n", processes, str(program)], tmp_path, services)
    assert "4 passed" in printed


def test_the_web_programs_are_typed_strictly(services: OrderServices, tmp_path: Path) -> None:
    names = []
    for path in sorted(PROGRAMS.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.stem.startswith("notebook"):  # a notebook awaits outside of functions
            text = "async def cells() -> None:\n" + indent(text, "    ")
        (tmp_path / path.name).write_text(text, encoding="utf-8")
        names.append(path.name)
    assert len(names) >= 8
    options = ["--strict", "--config-file=", "--follow-imports=silent", "--cache-dir=cache"]
    # Celery has no types.
    options += ["--disable-error-code=import-untyped", "--disable-error-code=untyped-decorator"]
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--python-executable", str(WEB_PYTHON), *names],
        cwd=tmp_path,
        env={"MYPYPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
