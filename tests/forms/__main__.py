"""Prints what became of every call: a table of situation, form and outcomes.

.venv/bin/python -m tests.forms            the table
.venv/bin/python -m tests.forms --calls    and each call that does not return
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

from tests.forms.opened_forms import opened
from tests.forms.promises import RAISED, summary
from tests.forms.real_servers import servers


def main() -> None:
    logging.disable(logging.CRITICAL)
    print("| situation | form | outcomes |\n|---|---|---|")
    for situation, promised in RAISED.items():
        for form in promised:
            with (
                tempfile.TemporaryDirectory() as folder,
                servers(Path(folder)) as found,
                opened(form, found, form) as objects,
            ):
                outcomes = situation(objects)
            print(f"| {situation.__name__} | {form} | {summary(outcomes)} |", flush=True)
            if "--calls" in sys.argv:
                for call, error in outcomes:
                    if error is not None:
                        print(f"    {call}: {error!r:.160}")


main()
