"""Reads the project's modules and names every place that breaks a rule of rings.toml.

Only `ast` is used: nothing of the project is imported, so that half-written packages can be
checked and importing has no side effects.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from tests.syntax_trees import nodes_of, tree_of

RING_LAST = 3


@dataclass(frozen=True)
class Opening:
    """Names that one file may use although its package or ring may not."""

    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Rules:
    """The content of rings.toml."""

    packages: dict[str, list[str]]
    layers: dict[str, list[str]]
    third_party: dict[str, list[str]]
    kinds: tuple[str, ...]
    denied_kinds: dict[int, tuple[str, ...]]
    denied: dict[int, tuple[str, ...]]
    rings: dict[str, int]
    reasons: dict[str, str]
    openings: dict[str, Opening]
    listed_twice: tuple[str, ...]

    def highest_ring(self, path: str, *, without: str = "") -> int:
        """The highest ring that a line lets a file be in; a file without a line is pure.

        Args:
            path: the file.
            without: a line that does not count.
        """
        return max(
            (ring for line, ring in self.rings.items() if line != without and holds(line, path)),
            default=0,
        )

    def opens(self, path: str, name: str) -> bool:
        """Whether an opening lets this file use this name."""
        opening = self.openings.get(path)
        return opening is not None and any(is_within(name, opened) for opened in opening.names)


@dataclass(frozen=True)
class SourceFile:
    """One module: its path from the root, its dotted name and its syntax tree."""

    path: str
    module: str
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The top-level package it belongs to."""
        return self.module.partition(".")[0]

    @property
    def part(self) -> str | None:
        """The part of its package, if it is in one."""
        folders = self.path.split("/")[1:-1]
        return folders[0] if folders else None


@cache  # asked of each line and each file, again and again
def holds(line: str, path: str) -> bool:
    """Whether a line of the rings, a path or a pattern with stars, holds for a file."""
    if "*" in line:
        return PurePosixPath(path).match(line)
    return f"/{path}".endswith(f"/{line}")  # as `match`, and much quicker


def is_within(name: str, outer: str) -> bool:
    """Whether a dotted name is the outer one or something inside it."""
    return name == outer or name.startswith(outer + ".")


def read_rules(tables: dict[str, Any]) -> Rules:
    """The rules in the tables of rings.toml; raises KeyError when one of them is missing."""
    kinds = tables["kinds"]
    rings: dict[str, int] = {}
    reasons: dict[str, str] = {}
    listed_twice: list[str] = []
    for ring, entries in tables.get("rings", {}).items():
        for path, reason in entries.items():
            if path in rings:
                listed_twice.append(path)
            rings[path] = int(ring)
            reasons[path] = reason
    openings = {
        path: Opening(names=tuple(entry["names"]), reason=entry["reason"])
        for path, entry in tables.get("openings", {}).items()
    }
    return Rules(
        packages=tables["packages"],
        layers=tables["layers"],
        third_party=tables["third_party"],
        kinds=tuple(kinds),
        denied_kinds={int(ring): tuple(denied) for ring, denied in tables["denied"].items()},
        denied={
            int(ring): tuple(name for kind in denied for name in kinds[kind])
            for ring, denied in tables["denied"].items()
        },
        rings=rings,
        reasons=reasons,
        openings=openings,
        listed_twice=tuple(listed_twice),
    )


def read_tree(root: Path, packages: list[str]) -> dict[str, SourceFile]:
    """All modules of the packages below a root, by path. A package not there yet has none."""
    files: dict[str, SourceFile] = {}
    for package in packages:
        for found in sorted((root / package).rglob("*.py")):
            path = found.relative_to(root).as_posix()
            parts = path.removesuffix(".py").split("/")
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = found.read_text(encoding="utf-8")
            files[path] = SourceFile(path, module, text, tree_of(found))
    return files


@cache
def imported_names(tree: ast.Module) -> tuple[tuple[int, str], ...]:
    """Line and full dotted name of each import, wherever it stands.

    Imports inside functions and under TYPE_CHECKING are found too: every node is walked. A
    relative import is given as it is written, with its dots.
    """
    return tuple(_imports_in(tree))


def _imports_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            separator = "" if module.endswith(".") else "."
            for alias in node.names:
                yield node.lineno, module if alias.name == "*" else module + separator + alias.name


@cache
def used_names(tree: ast.Module) -> tuple[tuple[int, str], ...]:
    """Line and full dotted name of each use of something imported, or of a builtin by its name."""
    return tuple(_uses_in(tree))


def _uses_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    origins: dict[str, str] = {}
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                origins[local] = alias.name if alias.asname else local
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                origins[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute):
            dotted = _dotted(node)
            if dotted is not None:
                local, _, rest = dotted.partition(".")
                if local in origins:
                    yield node.lineno, f"{origins[local]}.{rest}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.lineno, origins.get(node.func.id, node.func.id)


def _dotted(node: ast.expr) -> str | None:
    """The text of a plain chain of attributes, None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return None if inner is None else f"{inner}.{node.attr}"
    return None


# In a table of packages: what the package hands on by name, and nothing inside of it.
EXPORTS = ".__all__"


def exports(files: dict[str, SourceFile], package: str) -> dict[str, str]:
    """What a package hands on in `__all__`, as the dotted names of its users and of its own."""
    found = files.get(f"{package}/__init__.py")
    if found is None:
        return {}
    public: set[str] = set()
    for node in found.tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            public = set(ast.literal_eval(node.value))
    return {
        f"{package}.{alias.asname or alias.name}": f"{node.module}.{alias.name}"
        for node in found.tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (alias.asname or alias.name) in public
    }


def is_allowed(name: str, allowed: list[str], files: dict[str, SourceFile]) -> bool:
    """Whether a package with that line in the table may import this name of the project."""
    for part in allowed:
        if part.endswith(EXPORTS):
            if name in exports(files, part.removesuffix(EXPORTS)):
                return True
        elif is_within(name, part):
            return True
    return False


def forbidden_imports(files: dict[str, SourceFile], rules: Rules) -> list[str]:
    """Imports that the tables of packages do not allow."""
    found: list[str] = []
    for file in files.values():
        for line, name in imported_names(file.tree):
            where = f"{file.path}:{line}"
            top = name.partition(".")[0]
            if name.startswith("."):
                found.append(f"{where}: relative import {name}: write the full name")
                continue
            if top == file.package or top in sys.stdlib_module_names:
                continue
            if rules.opens(file.path, name):
                continue
            if top in rules.packages:
                allowed = rules.packages[file.package]
                if not is_allowed(name, allowed, files):
                    found.append(f"{where}: {file.package} may not import {name}")
            elif top not in rules.third_party[file.package]:
                found.append(f"{where}: {file.package} may not import {name} from outside")
    return found


def layer_breaches(files: dict[str, SourceFile], rules: Rules) -> list[str]:
    """Imports of a part by one that lies below it, and parts that nobody put anywhere."""
    found: list[str] = []
    for file in files.values():
        if file.part is None or file.package not in rules.layers:
            continue
        layers = rules.layers[file.package]
        if file.part not in layers:
            found.append(f"{file.path}: {file.part} is not among the layers of {file.package}")
            continue
        above = layers[layers.index(file.part) + 1 :]
        for line, name in imported_names(file.tree):
            for part in above:
                if is_within(name, f"{file.package}.{part}"):
                    found.append(f"{file.path}:{line}: {file.part} imports {part}, which is above")
    return found


def ring_breaches(files: dict[str, SourceFile], rules: Rules) -> list[str]:
    """Names used in a ring that is denied them, and imports that point to a higher ring.

    A thing that a file may not use is told once, at its first line.
    """
    rings = _Rings(files, rules)
    return [line for file in files.values() for line in rings.breaches_of(file)]


@cache
def _all_names(tree: ast.Module) -> tuple[tuple[int, str], ...]:
    """Line and full dotted name of all that is imported or used, in their order."""
    return tuple(sorted({*imported_names(tree), *used_names(tree)}))


def denied_uses(file: SourceFile, ring: int, rules: Rules) -> list[tuple[int, str]]:
    """What a file uses and may not use in a ring: the first line of each thing."""
    found: list[tuple[int, str]] = []
    told: set[str] = set()
    denied = rules.denied.get(ring, ())
    for line, name in _all_names(file.tree):
        if not name.startswith(denied):
            continue  # most names: one look instead of one for each entry
        for entry in denied:
            if is_within(name, entry) and entry not in told and not rules.opens(file.path, name):
                told.add(entry)
                found.append((line, name))
                break
    return found


class _Rings:
    """The ring of each file: the lowest that allows what it uses and imports, up to its highest."""

    def __init__(self, files: dict[str, SourceFile], rules: Rules) -> None:
        self._rules = rules
        self._highest = {path: rules.highest_ring(path) for path in files}
        by_module = {file.module: file.path for file in files.values()}
        handed_on = _handed_on(files, rules)
        self._targets = {
            path: [
                (line, target)
                for line, name in imported_names(file.tree)
                if (target := _resolve(handed_on.get(name, name), by_module)) is not None
            ]
            for path, file in files.items()
        }
        self.of = {path: self._lowest(file) for path, file in files.items()}
        is_settled = False
        while not is_settled:
            is_settled = True
            for path, targets in self._targets.items():
                above = max((self.of[target] for _line, target in targets), default=0)
                ring = min(max(self.of[path], above), self._highest[path])
                if ring != self.of[path]:
                    self.of[path] = ring
                    is_settled = False

    def _lowest(self, file: SourceFile) -> int:
        """The lowest ring that allows what a file uses."""
        highest = self._highest[file.path]
        fits = (ring for ring in range(highest) if not denied_uses(file, ring, self._rules))
        return next(fits, highest)

    def breaches_of(self, file: SourceFile) -> list[str]:
        """What a file uses that its highest ring is denied, and files of higher rings."""
        ring = self._highest[file.path]
        found = [
            f"{file.path}:{line}: ring {ring} may not use {name}"
            for line, name in denied_uses(file, ring, self._rules)
        ]
        told: set[str] = set()
        for line, target in self._targets[file.path]:
            above = self.of[target]
            if above > ring and target not in told:
                told.add(target)
                found.append(f"{file.path}:{line}: ring {ring} imports {target} of ring {above}")
        return found


def _handed_on(files: dict[str, SourceFile], rules: Rules) -> dict[str, str]:
    """A name that a package hands on belongs to the ring of the file that it is from."""
    return {
        name: origin
        for package in rules.packages
        for name, origin in exports(files, package).items()
    }


def _resolve(name: str, by_module: dict[str, str]) -> str | None:
    """The file that an imported name lives in: the longest part of it that is a module."""
    while name:
        if name in by_module:
            return by_module[name]
        name = name.rpartition(".")[0]
    return None


def stale_entries(files: dict[str, SourceFile], rules: Rules) -> list[str]:
    """Lines of rings.toml that say nothing: file gone, no reason, name not used, listed twice."""
    found = [f"{path} is listed in two rings" for path in rules.listed_twice]
    for path, reason in rules.reasons.items():
        if not any(holds(path, file) for file in files):
            found.append(f"{path} is listed in a ring, and holds for no file")
        if not reason.strip():
            found.append(f"{path} is listed in a ring without a reason")
        if not 1 <= rules.rings[path] <= RING_LAST:
            found.append(f"{path} is listed in ring {rules.rings[path]}, which does not exist")
    for path, opening in rules.openings.items():
        if path not in files:
            found.append(f"{path} has an opening but does not exist")
            continue
        if not opening.reason.strip():
            found.append(f"{path} has an opening without a reason")
        tree = files[path].tree
        names = {name for _, name in imported_names(tree)} | {name for _, name in used_names(tree)}
        found.extend(
            f"{path} has an opening for {opened}, which it does not use"
            for opened in opening.names
            if not any(is_within(name, opened) for name in names)
        )
    return found


def needless_entries(files: dict[str, SourceFile], rules: Rules) -> list[str]:
    """Entries of rings.toml that no file needs: without one of them, every check would still pass.

    A line of the rings is needless when no file for which it holds needs that ring by it. What the
    packages may import of one another is left out: that is a decision, not a list of uses.
    """
    rings = _Rings(files, rules)
    found: list[str] = []
    for line, ring in rules.rings.items():
        held = [path for path in files if holds(line, path)]
        needed = [
            rings.of[path]
            for path in held
            if rings.of[path] > rules.highest_ring(path, without=line)
        ]
        lowest = max(needed, default=0)
        if held and lowest < ring:  # one that holds for none is told by `stale_entries`
            found.append(f"{line} is in ring {ring}, and could be in ring {lowest}")
    for path, opening in rules.openings.items():
        for name in opening.names if path in files else ():
            rest = tuple(other for other in opening.names if other != name)
            openings = {**rules.openings, path: replace(opening, names=rest)}
            closed = replace(rules, openings=openings)
            file = files[path]
            ring = rings.of[path]
            if not forbidden_imports({path: file}, closed) and not denied_uses(file, ring, closed):
                found.append(f"{path} has an opening for {name}, which it may use anyhow")
    for package, allowed in rules.third_party.items():
        names = {
            name
            for file in files.values()
            if file.package == package
            for _line, name in imported_names(file.tree)
        }
        found.extend(
            f"third_party: {package} may import {part}, and does not"
            for part in allowed
            if not any(is_within(name, part) for name in names)
        )
    parts = {(file.package, file.part) for file in files.values()}
    for package, layers in rules.layers.items():
        found.extend(
            f"layers: {package} has no part {part}"
            for part in layers
            if (package, part) not in parts
        )
    used = {kind for kinds in rules.denied_kinds.values() for kind in kinds}
    found.extend(f"kinds: no ring is denied {kind}" for kind in rules.kinds if kind not in used)
    return found
