"""A pytest plugin: writes how each test ended, and by what kind of error, to a file.

A mutant counts as noticed only where a test says so: by an assertion, or by an error that the
product itself raises. A NameError in the mutated code proves nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest
import trio

# Names the file to write to; set by whoever starts pytest with this plugin.
FILE_VARIABLE = "MUTANT_OUTCOMES"

# Raised by tests: asserts, pytest.fail and pytest.raises that met no error, time limits.
VERDICT_CLASSES = (AssertionError, pytest.fail.Exception, trio.TooSlowError)
# Raised by the product on purpose. Known by name: the mutant may be in the module of errors.
PRODUCT_ERRORS = "dledger.errors"


def is_verdict(error: BaseException) -> bool:
    """Whether this error says that a promise was broken, not that the code is nonsense."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_verdict(one) for one in error.exceptions)
    return isinstance(error, VERDICT_CLASSES) or any(
        kind.__module__ == PRODUCT_ERRORS for kind in type(error).__mro__
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call" or report.failed:
        error = call.excinfo.value if call.excinfo is not None else None
        outcome = {
            "test": item.nodeid,
            "red": report.failed,
            "verdict": error is not None and is_verdict(error),
            "error": "" if error is None else f"{type(error).__name__}: {error}".splitlines()[0],
        }
        with Path(os.environ[FILE_VARIABLE]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(outcome) + "\n")
    return report
