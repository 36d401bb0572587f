"""Measures the project's modules: lengths, names, and things that must not be left behind."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from tests.project.source_tree import SourceFile
from tests.syntax_trees import nodes_of

# What we aim for, and what fails. Between the two, a file or function is listed, not refused: a
# file is cut along its nouns, and half a noun in each of two files reads worse than a long one.
FILE_LINES_WISHED = 400
FILE_LINES_MAX = 800
FUNCTION_LINES_WISHED = 60
FUNCTION_LINES_MAX = 80

# Names that say where code was put, not what it is.
FORBIDDEN_WORDS = frozenset(
    {
        "common",
        "factories",
        "factory",
        "helper",
        "helpers",
        "manager",
        "managers",
        "util",
        "utilities",
        "utils",
    }
)
# Put together, so that this file is not found by a search for them.
UNFINISHED_MARKS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX"]) + r")\b")
UNFINISHED_ERROR = "NotImplemented" + "Error"

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


def file_lines(file: SourceFile) -> int:
    """Lines of a file, all of them."""
    return len(file.text.splitlines())


def function_lines(function: AnyFunction) -> int:
    """Lines of a function from its `def`, less those of its docstring."""
    last = function.end_lineno or function.lineno
    lines = last - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def functions(file: SourceFile) -> Iterator[AnyFunction]:
    """All functions and methods of a file, inner ones too."""
    for node in nodes_of(file.tree):
        if isinstance(node, AnyFunction):
            yield node


def longer_than(files: dict[str, SourceFile], file_limit: int, function_limit: int) -> list[str]:
    """Files and functions with more lines than the limits."""
    found: list[str] = []
    for file in files.values():
        lines = file_lines(file)
        if lines > file_limit:
            found.append(f"{file.path}: {lines} lines, more than {file_limit}")
        for function in functions(file):
            lines = function_lines(function)
            if lines > function_limit:
                where = f"{file.path}:{function.lineno}"
                found.append(f"{where}: {function.name}: {lines} lines, more than {function_limit}")
    return found


def forbidden_names(files: dict[str, SourceFile]) -> list[str]:
    """Folders, files and classes with a forbidden word in their name."""
    found: list[str] = []
    for file in files.values():
        for part in file.path.removesuffix(".py").split("/"):
            found.extend(f"{file.path}: named {word}" for word in _words(part) & FORBIDDEN_WORDS)
        for node in nodes_of(file.tree):
            if isinstance(node, ast.ClassDef):
                where = f"{file.path}:{node.lineno}"
                words = _words(node.name) & FORBIDDEN_WORDS
                found.extend(f"{where}: class {node.name} named {word}" for word in words)
    return sorted(set(found))


def _words(name: str) -> set[str]:
    """The words of a name, from snake_case or CapWords, in small letters."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def unfinished(files: dict[str, SourceFile]) -> list[str]:
    """Marks of unfinished work, and exceptions that are caught and dropped."""
    found: list[str] = []
    for file in files.values():
        for line, comment in _comments(file.text):
            for mark in UNFINISHED_MARKS.findall(comment):
                found.append(f"{file.path}:{line}: {mark} in a comment")
        for node in nodes_of(file.tree):
            if isinstance(node, ast.Name) and node.id == UNFINISHED_ERROR:
                found.append(f"{file.path}:{node.lineno}: {UNFINISHED_ERROR}")
            elif isinstance(node, ast.ExceptHandler) and _drops_everything(node):
                found.append(f"{file.path}:{node.lineno}: every exception is caught and dropped")
    return found


def _comments(text: str) -> Iterator[tuple[int, str]]:
    if not UNFINISHED_MARKS.search(text):
        return  # cutting all files into tokens takes as long as parsing them all
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _drops_everything(handler: ast.ExceptHandler) -> bool:
    """Whether a handler takes any exception whatever and does nothing with it."""
    caught = handler.type
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    takes_all = any(
        name is None or (isinstance(name, ast.Name) and name.id in {"Exception", "BaseException"})
        for name in names
    )
    return takes_all and all(isinstance(statement, ast.Pass) for statement in handler.body)


def remade_events(files: dict[str, SourceFile]) -> list[str]:
    """Attributes that get another `trio.Event` while a task may wait on the one before."""
    found: list[str] = []
    for file in files.values():
        for function in functions(file):
            if function.name != "__init__":
                found += [
                    f"{file.path}:{node.lineno}: {ast.unparse(node.targets[-1])} is made anew"
                    for node in ast.walk(function)
                    if isinstance(node, ast.Assign) and _remakes_event(node)
                ]
    return found


def _remakes_event(node: ast.Assign) -> bool:
    values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    targets = [
        target
        for each in node.targets
        for target in (each.elts if isinstance(each, ast.Tuple) else [each])
    ]
    return any(isinstance(target, ast.Attribute) for target in targets) and any(
        isinstance(value, ast.Call)
        and ast.unparse(value.func) in ("Event", "trio.Event", "asyncio.Event")
        for value in values
    )
