"""The packages and rings of rings.toml hold, and each check of them can fail."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.project.source_tree import (
    Rules,
    SourceFile,
    forbidden_imports,
    layer_breaches,
    needless_entries,
    read_rules,
    read_tree,
    ring_breaches,
    stale_entries,
)

PROJECT = Path(__file__).parent.parent.parent
RULES_TABLES = tomllib.loads((Path(__file__).parent / "rings.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def rules() -> Rules:
    return read_rules(RULES_TABLES)


@pytest.fixture(scope="module")
def files(rules: Rules) -> dict[str, SourceFile]:
    return read_tree(PROJECT, list(rules.packages))


def test_each_package_imports_only_what_it_may(files: dict[str, SourceFile], rules: Rules) -> None:
    found = forbidden_imports(files, rules)
    assert not found, "\n".join(found)


def test_the_parts_of_a_package_import_only_downwards(
    files: dict[str, SourceFile], rules: Rules
) -> None:
    found = layer_breaches(files, rules)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("package", ["dledger", "dledger_mq", "dledger_spark"])
def test_the_page_on_the_architecture_names_the_parts_from_the_ground_up(
    package: str, rules: Rules
) -> None:
    page = (PROJECT / "docs/architecture.md").read_text(encoding="utf-8")
    section = page.partition(f"## The parts of {package}\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == rules.layers[package]


def test_each_file_keeps_to_its_ring(files: dict[str, SourceFile], rules: Rules) -> None:
    found = ring_breaches(files, rules)
    assert not found, "\n".join(found)


def test_each_line_of_the_ring_lists_is_needed(files: dict[str, SourceFile], rules: Rules) -> None:
    found = stale_entries(files, rules)
    assert not found, "\n".join(found)


def test_each_entry_of_the_lists_is_needed(files: dict[str, SourceFile], rules: Rules) -> None:
    found = needless_entries(files, rules)
    assert not found, "\n".join(found)


# Below, the checks are shown to be able to fail, each on a tree of one or two small files.


def small_tree(root: Path, sources: dict[str, str]) -> dict[str, SourceFile]:
    """Write the sources below a root, as packages, and read them back."""
    for path, text in sources.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return read_tree(root, sorted({path.partition("/")[0] for path in sources}))


def rules_with(rings: str = "", openings: str = "") -> Rules:
    """The real rules, with other lists of files."""
    lists = tomllib.loads(f"{rings}\n[openings]\n{openings}\n")
    return read_rules({**RULES_TABLES, "rings": {}, **lists})


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("broker/a.py", "import nameserver.routes", "broker may not import nameserver.routes"),
        ("dledger_mq/a.py", "from broker import a", "dledger_mq may not import broker.a"),
        ("nameserver/a.py", "import dledger_mq", "nameserver may not import dledger_mq"),
        ("remoting/a.py", "import dledger", "remoting may not import dledger"),
        ("dledger/a.py", "from remoting import frame", "dledger may not import remoting.frame"),
        (
            "dledger_spark/a.py",
            "from dledger import store, node",
            "dledger_spark may not import dledger.node",
        ),
        ("dledger/a.py", "def f():\n    import broker\n", "dledger may not import broker"),
        (
            "dledger/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import broker\n",
            "dledger may not import broker",
        ),
        ("broker/a.py", "from . import b", "relative import .b: write the full name"),
        ("broker/a.py", "from ..dledger import b", "relative import ..dledger.b"),
        ("dledger/a.py", "import pyspark.sql", "may not import pyspark.sql from outside"),
        ("remoting/a.py", "from click import echo", "may not import click.echo from outside"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, path: str, source: str, expected: str) -> None:
    found = forbidden_imports(small_tree(tmp_path, {path: source}), rules_with())
    assert len(found) == 1
    assert expected in found[0]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("jepsen_like/a.py", "import dledger.node\nfrom remoting import frame\nimport struct\n"),
        ("broker/a.py", "from broker.b import c\nimport trio\n"),
        ("dledger_spark/a.py", "from dledger import store\nimport dledger.store.segment\n"),
        ("jepsen_like/a.py", "import broker, nameserver, dledger_mq, dledger_spark\n"),
    ],
)
def test_an_allowed_import_is_not_reported(tmp_path: Path, path: str, source: str) -> None:
    assert forbidden_imports(small_tree(tmp_path, {path: source}), rules_with()) == []


EXPORTING = {
    "dledger/__init__.py": "from dledger.node import run\nfrom dledger.entry import Entry, hidden\n"
    "__all__ = ['Entry', 'run']\n",
    "dledger/entry.py": "",
    "dledger/node.py": "import trio",
}


def test_what_a_package_exports_may_be_imported_and_nothing_inside_of_it(tmp_path: Path) -> None:
    rules = rules_with()
    for name, fine in (
        ("from dledger import Entry, run", True),
        ("from dledger import hidden", False),
        ("from dledger.entry import Entry", False),
        ("import dledger.entry", False),
    ):
        sources = {**EXPORTING, "broker/a.py": name + "\n"}
        assert (forbidden_imports(small_tree(tmp_path, sources), rules) == []) == fine, name


def test_a_name_that_is_handed_on_is_of_the_ring_it_is_from(tmp_path: Path) -> None:
    rings = '[rings.2]\n"dledger/__init__.py" = "why"\n"dledger/node.py" = "why"\n'
    for name, fine in (("Entry", True), ("run", False)):
        sources = {**EXPORTING, "broker/a.py": f"from dledger import {name}\n"}
        found = ring_breaches(small_tree(tmp_path, sources), rules_with(rings=rings))
        assert (found == []) == fine, found


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("dledger/store/a.py", "from dledger.node.node import Node", "store imports node"),
        ("dledger/core/a.py", "def f():\n    import dledger.store\n", "core imports store"),
        ("dledger/elsewhere/a.py", "", "elsewhere is not among the layers of dledger"),
    ],
)
def test_an_import_of_what_lies_above_is_found(
    tmp_path: Path, path: str, source: str, expected: str
) -> None:
    (found,) = layer_breaches(small_tree(tmp_path, {path: source}), rules_with())
    assert expected in found


def test_an_import_of_what_lies_below_is_not_reported(tmp_path: Path) -> None:
    sources = {"dledger/node/a.py": "import dledger.store.disk\nfrom dledger.node import b\n"}
    assert layer_breaches(small_tree(tmp_path, sources), rules_with()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import trio",
        "import random",
        "import time",
        "import os.path",
        "import socket",
        "from logging import getLogger",
        "import datetime",
        "import secrets",
        "import threading",
        "from pathlib import Path",
        "import asyncio",
        "def f():\n    import random\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import trio\n",
        "import importlib\nimportlib.import_module('trio')\n",
        "__import__('trio')",
        "open('a')",
        "import sys\nsys.argv\n",
    ],
)
def test_a_pure_file_that_is_not_pure_is_found(tmp_path: Path, source: str) -> None:
    found = ring_breaches(small_tree(tmp_path, {"dledger/a.py": source}), rules_with())
    assert found
    assert all("ring 0 may not use" in line for line in found)


@pytest.mark.parametrize(
    ("ring", "source"),
    [
        (1, "import trio"),
        (1, "import time"),
        (1, "import random"),
        (1, "import socket"),
        (2, "import os\nos.environ['HOME']\n"),
        (2, "from os import environ"),
        (2, "import os as system\nsystem.getenv('HOME')\n"),
        (2, "import time\ntime.time()\n"),
        (2, "from time import time_ns as now"),
        (2, "from datetime import datetime\ndatetime.now()\n"),
        (2, "import datetime\ndatetime.datetime.now(datetime.UTC)\n"),
        (2, "from sys import argv"),
        (2, "import sys\nprogram = sys.argv[0]\n"),
        (2, "import click"),
        (2, "import asyncio"),
        (3, "import gevent"),
        (3, "import importlib\nimportlib.import_module('broker')\n"),
    ],
)
def test_a_breach_of_a_higher_ring_is_found(tmp_path: Path, ring: int, source: str) -> None:
    rules = rules_with(f'[rings.{ring}]\n"dledger/a.py" = "a trial"')
    found = ring_breaches(small_tree(tmp_path, {"dledger/a.py": source}), rules)
    assert found
    assert all(f"ring {ring} may not use" in line for line in found)


@pytest.mark.parametrize(
    ("ring", "source"),
    [
        (0, "import struct, zlib, json, sys\nsys.maxsize\nfrom dataclasses import dataclass\n"),
        (1, "import os, mmap, struct\nos.fdatasync(3)\n"),
        (2, "import os, time, trio\ntime.monotonic()\nos.close(3)\n"),
        (3, "import os, sys, time, click\nos.environ\nsys.argv\ntime.time()\n"),
    ],
)
def test_what_a_ring_may_use_is_not_reported(tmp_path: Path, ring: int, source: str) -> None:
    rules = rules_with(f'[rings.{ring}]\n"dledger/a.py" = "a trial"' if ring else "")
    assert ring_breaches(small_tree(tmp_path, {"dledger/a.py": source}), rules) == []


@pytest.mark.parametrize(
    "source", ["import dledger.node", "from dledger import node", "from dledger.node import Node"]
)
def test_an_import_that_points_to_a_higher_ring_is_found(tmp_path: Path, source: str) -> None:
    rules = rules_with('[rings.2]\n"dledger/node.py" = "a trial"')
    tree = small_tree(tmp_path, {"dledger/node.py": "import trio", "dledger/core/a.py": source})
    assert ring_breaches(tree, rules) == [
        "dledger/core/a.py:1: ring 0 imports dledger/node.py of ring 2"
    ]


def test_a_line_may_hold_for_many_files_and_the_highest_ring_counts(tmp_path: Path) -> None:
    rules = rules_with(
        '[rings.2]\n"dledger/*.py" = "why"\n[rings.3]\n"__main__.py" = "why"\n'
        '[rings.1]\n"dledger/a/*.py" = "why"\n'
    )
    sources = {
        "dledger/a/__main__.py": "import click",
        "dledger/a/c.py": "import os",
        "dledger/a/d.py": "import trio",
        "dledger/f.py": "import trio",
        "dledger/g.py": "import click",
        "dledger/e/f.py": "import os",
    }
    tree = small_tree(tmp_path, sources)
    assert ring_breaches(tree, rules) == [
        "dledger/a/d.py:1: ring 1 may not use trio",
        "dledger/e/f.py:1: ring 0 may not use os",
        "dledger/g.py:1: ring 2 may not use click",
    ]
    assert not [line for line in needless_entries(tree, rules) if "is in ring" in line]


def test_a_pure_file_may_import_the_pure_files_of_a_folder_and_no_others(tmp_path: Path) -> None:
    rules = rules_with('[rings.2]\n"dledger/node/*.py" = "why"\n')
    sources = {
        "dledger/node/pure.py": "",
        "dledger/node/waits.py": "import trio",
        "dledger/node/by_others.py": "import dledger.node.waits",
        "dledger/core/a.py": "import dledger.node.pure\nimport dledger.node.by_others",
    }
    assert ring_breaches(small_tree(tmp_path, sources), rules) == [
        "dledger/core/a.py:2: ring 0 imports dledger/node/by_others.py of ring 2"
    ]


def test_an_opening_lets_one_file_use_one_name(tmp_path: Path) -> None:
    opening = '"dledger_mq/a.py" = { names = ["random", "broker"], reason = "a trial" }'
    rules = rules_with(openings=opening)
    tree = small_tree(
        tmp_path,
        {
            "dledger_mq/a.py": "import random, broker.topics\nimport time\n",
            "dledger_mq/b.py": "import random, broker.topics\n",
        },
    )
    assert forbidden_imports(tree, rules) == [
        "dledger_mq/b.py:1: dledger_mq may not import broker.topics"
    ]
    assert ring_breaches(tree, rules) == [
        "dledger_mq/a.py:2: ring 0 may not use time",
        "dledger_mq/b.py:1: ring 0 may not use random",
    ]
    assert stale_entries(tree, rules) == []


@pytest.mark.parametrize(
    ("rings", "openings", "expected"),
    [
        ('[rings.1]\n"dledger/gone.py" = "a trial"', "", "listed in a ring, and holds for no file"),
        ('[rings.1]\n"dledger/a.py" = " "', "", "listed in a ring without a reason"),
        ('[rings.7]\n"dledger/a.py" = "a trial"', "", "ring 7, which does not exist"),
        (
            '[rings.1]\n"dledger/a.py" = "a"\n[rings.2]\n"dledger/a.py" = "b"',
            "",
            "listed in two rings",
        ),
        ("", '"dledger/gone.py" = { names = [], reason = "a" }', "opening but does not exist"),
        ("", '"dledger/a.py" = { names = ["zlib"], reason = "" }', "opening without a reason"),
        ("", '"dledger/a.py" = { names = ["random"], reason = "a" }', "which it does not use"),
    ],
)
def test_a_line_that_says_nothing_is_found(
    tmp_path: Path, rings: str, openings: str, expected: str
) -> None:
    tree = small_tree(tmp_path, {"dledger/a.py": "import zlib"})
    found = stale_entries(tree, rules_with(rings, openings))
    assert len(found) == 1
    assert expected in found[0]


def small_rules(**tables: object) -> Rules:
    """Rules of two packages that name nothing, but for the tables that are given."""
    empty: dict[str, object] = {
        "packages": {"a": [], "b": []},
        "layers": {},
        "third_party": {"a": [], "b": []},
    }
    kinds = {"kinds": {"clock": ["time"]}, "denied": {"0": ["clock"], "1": ["clock"], "2": []}}
    return read_rules({**empty, **kinds, **tables})


@pytest.mark.parametrize(
    ("source", "tables", "expected"),
    [
        (
            "import os",
            {"rings": {"2": {"a/c.py": "a trial"}}},
            "a/c.py is in ring 2, and could be in ring 0",
        ),
        (
            "import b.d",
            {"rings": {"2": {"a/c.py": "a trial", "b/d.py": "it is needed"}}},
            None,
        ),
        (
            "import b.d",
            {"rings": {"1": {"a/c.py": "a trial"}}},
            "a/c.py is in ring 1, and could be in ring 0",
        ),
        (
            "import time",
            {"rings": {"1": {"a/c.py": "a trial"}, "2": {"a/*.py": "it is enough"}}},
            "a/c.py is in ring 1, and could be in ring 0",
        ),
        (
            "import zlib",
            {"openings": {"a/c.py": {"names": ["zlib"], "reason": "a trial"}}},
            "a/c.py has an opening for zlib, which it may use anyhow",
        ),
        ("import time", {"openings": {"a/c.py": {"names": ["time"], "reason": "needed"}}}, None),
        ("import b.d", {"openings": {"a/c.py": {"names": ["b"], "reason": "needed"}}}, None),
        (
            "import trio",
            {"third_party": {"a": ["trio", "rich"], "b": ["rich"]}},
            "third_party: a may import rich, and does not",
        ),
        ("import e", {"layers": {"a": ["f"]}}, "layers: a has no part f"),
        (
            "import e",
            {"kinds": {"clock": ["time"], "chance": ["random"]}},
            "kinds: no ring is denied chance",
        ),
    ],
)
def test_an_entry_that_no_file_needs_is_found(
    tmp_path: Path, source: str, tables: dict[str, object], expected: str | None
) -> None:
    tree = small_tree(tmp_path, {"a/c.py": source, "b/d.py": "import time, rich\n"})
    assert needless_entries(tree, small_rules(**tables)) == ([expected] if expected else [])


def test_a_package_that_does_not_exist_yet_is_no_error(tmp_path: Path) -> None:
    assert read_tree(tmp_path, ["dledger", "broker"]) == {}
