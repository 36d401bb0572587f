"""What clients send becomes values of a type where it comes in; the code behind shows that.

Each rule looks at all modules of the servers. What it lets pass is listed with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.syntax_trees import nodes_of, tree_of

ROOT = Path(__file__).parents[2]

# Their modules are given what clients send. The client and Spark read properties, too.
SERVERS = ("broker", "nameserver", "proxy", "remoting")
READERS = (*SERVERS, "dledger_mq", "dledger_spark")

# Reads numbers of text; nothing else does.
FIELD_VALUES = "remoting/wire/field_values.py"

# Reads runs of properties; nothing else knows how a run is written, but for the record's own fold
# (which looks for a tag in the midst of a record, and asks that module whether it is one).
PROPERTIES = "remoting/message/properties.py"
KNOW_RUNS = {PROPERTIES, "broker/messages/record_run.py", "broker/messages/record_facts.py"}


# Numbers of other things than clients' text.
OTHER_NUMBERS = {
    "broker/assignment/state.py": "rows of the own snapshot",
    "broker/delay/state.py": "rows of the own snapshot",
    "broker/filters/state.py": "rows of the own snapshot",
    "broker/locks/state.py": "rows of the own snapshot",
    "broker/offsets/state.py": "rows of the own snapshot",
    "broker/log/state_snapshot.py": "rows of the own snapshot",
    "broker/messages/state.py": "rows of the own snapshot",
    "broker/pop/state.py": "rows of the own snapshot",
    "broker/transactions/state.py": "rows of the own snapshot",
    "broker/store/consume_queue.py": "names of own files",
    "broker/store/key_index.py": "names of own files",
    "broker/store/synced_mark.py": "an own file",
    "broker/messages/record_facts.py": "numbers of a stored record",
    "broker/store/message_reader.py": "numbers of a stored record",
    "broker/store/queue_rebuild.py": "a constant",
    "remoting/message/message_id.py": "numbers of unpacked bytes",
    "remoting/bodies/json_object.py": "JSON's own numbers, and what the readers have read",
}

# Arguments of lines of a log that no client chooses, as they stand in the code.
OWN_ARGUMENTS = {
    "peer": "an address of the operating system, or of the proxy, read as an address",
    "self.peer": "the same",
    "self._peer": "the same",
    "connection.peer": "the same",
    "address": "an address that this process dials",
    "target": "the same",
    "name": "of a request code",
    "what": "a text of this program",
    "words": "a text of this program",
    "self._what": "a text of this program",
    "GIVEN_UP_TOPIC": "a text of this program",
}

NAMES_OF_RUNS = {"properties", "run", "raw", "together", "properties_run"}
# Properties that were read.
DICTS = {"message.properties"}

SEARCHES = {"find", "rfind", "index", "rindex", "count", "startswith"}
# Fields of headers that name something, and those that are an Integer in Java's headers.
NAME_FIELDS = {
    *("topic", "group", "consumerGroup", "producerGroup", "groupName", "clientId", "clientID"),
    *("srcGroup", "destGroup", "compareGroup"),
}
INT32_FIELDS = {
    *("queueId", "maxMsgNums", "sysFlag", "flag", "reconsumeTimes", "maxReconsumeTimes"),
    *("delayLevel", "count", "perm", "readQueueNums", "writeQueueNums", "topicSysFlag"),
    *("commitOrRollback", "maxNum", "initMode", "defaultTopicQueueNums", "bodyCrc32"),
}

LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def modules(packages: tuple[str, ...]) -> Iterator[tuple[str, ast.Module]]:
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name.endswith("_pb2.py"):
                continue  # generated
            yield str(path.relative_to(ROOT)), tree_of(path)


def numbers_of_text(path: str, tree: ast.Module) -> Iterator[str]:
    """Calls of `int` or `float` that may be given text."""
    for node in nodes_of(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if node.func.id == "map" and ast.unparse(node.args[0]) in ("int", "float"):
            yield f"{path}:{node.lineno} {ast.unparse(node)}"
        if node.func.id in ("int", "float") and node.args and not _is_arithmetic(node.args[0]):
            yield f"{path}:{node.lineno} {ast.unparse(node)}"


def _is_arithmetic(value: ast.expr) -> bool:
    """Whether an expression is a number, or a truth value, whatever is in it."""
    if isinstance(value, ast.BinOp | ast.Compare | ast.BoolOp | ast.UnaryOp):
        return True
    text = ast.unparse(value)
    return text.startswith(("self._clock(", "log(", "round(")) or ".is_" in text or text == "code"


def searches_of_runs(path: str, tree: ast.Module) -> Iterator[str]:
    """Searches in a run of properties, and knowledge of how one is written.

    `name in run and has_pair(run, name)` is none: it asks only where there may be something.
    """
    guards = {
        node.values[0]
        for node in nodes_of(tree)
        if isinstance(node, ast.BoolOp)
        and isinstance(node.op, ast.And)
        and isinstance(looks := node.values[0], ast.Compare)
        and isinstance(looks.ops[0], ast.In)
        and ast.unparse(node.values[1])
        == f"has_pair({ast.unparse(looks.comparators[0])}, {ast.unparse(looks.left)})"
    }
    for node in nodes_of(tree):
        if node in guards:
            continue
        where = f"{path}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            text = ast.unparse(node.comparators[0])
            if _last_name(node.comparators[0]) in NAMES_OF_RUNS and text not in DICTS:
                yield f"{where} {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in SEARCHES and _last_name(node.func.value) in NAMES_OF_RUNS:
                yield f"{where} {ast.unparse(node)}"
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, bytes | str)
            and len(node.value) > 1
            and len(node.value) < 40
        ):
            separators = ("\x01", "\x02") if isinstance(node.value, str) else (b"\x01", b"\x02")
            if any(one in node.value for one in separators):  # type: ignore[operator]
                yield f"{where} {node.value!r}"


def _last_name(value: ast.expr) -> str:
    if isinstance(value, ast.Call):
        value = value.func
    return ast.unparse(value).rpartition(".")[2]


def loose_readers(path: str, tree: ast.Module) -> Iterator[str]:
    """Fields that are read as something wider than they are."""
    for node in nodes_of(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        field = node.args[0]
        if not isinstance(field, ast.Constant):
            continue
        owner, reader = ast.unparse(node.func.value), node.func.attr
        if owner not in ("command", "command.fields", "asked"):
            continue
        is_loose_name = reader in ("text", "get") and field.value in NAME_FIELDS
        if is_loose_name or (reader == "integer" and field.value in INT32_FIELDS):
            yield f"{path}:{node.lineno} {ast.unparse(node)}"


def log_calls(tree: ast.Module) -> Iterator[ast.Call]:
    for node in nodes_of(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LEVELS
            and ast.unparse(node.func.value) in ("_log", "logger", "logging")
        ):
            yield node


def raw_text_in_logs(path: str, tree: ast.Module) -> Iterator[str]:
    """Arguments of lines of a log that may be what a client sent as it is."""
    for node in log_calls(tree):
        where = f"{path}:{node.lineno}"
        args = node.args[1:] if node.func.attr == "log" else node.args  # type: ignore[attr-defined]
        if not (isinstance(args[0], ast.Constant) and isinstance(args[0].value, str)):
            yield f"{where} the text is not in the code"
            continue
        placeholders = args[0].value.replace("%%", "").split("%")[1:]
        if len(placeholders) != len(args) - 1 or any(isinstance(one, ast.Starred) for one in args):
            yield f"{where} cannot be checked: write each argument by itself"
            continue
        for placeholder, argument in zip(placeholders, args[1:], strict=True):
            is_number = placeholder.lstrip("0123456789.")[:1] in "df"
            text = ast.unparse(argument)
            if not (is_number or text.startswith("quoted(") or text in OWN_ARGUMENTS):
                yield f"{where} {text}"


def test_only_one_module_makes_numbers_of_text() -> None:
    found = [
        one
        for path, tree in modules(SERVERS)
        if path != FIELD_VALUES and path not in OTHER_NUMBERS
        for one in numbers_of_text(path, tree)
    ]
    assert found == [], f"read it by {FIELD_VALUES}"


def test_only_one_module_searches_in_runs_of_properties() -> None:
    found = [
        one
        for path, tree in modules(READERS)
        if path not in KNOW_RUNS
        for one in searches_of_runs(path, tree)
    ]
    assert found == [], f"ask {PROPERTIES}"


def test_fields_are_read_as_what_they_are() -> None:
    found = [one for path, tree in modules(("broker",)) for one in loose_readers(path, tree)]
    assert found == [], "read them by `name` and by `int32`"


def test_no_line_of_a_log_has_what_a_client_sent_as_it_is() -> None:
    found = [one for path, tree in modules(SERVERS) for one in raw_text_in_logs(path, tree)]
    assert found == [], "put it in by `quoted`"


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (numbers_of_text, "int(command.fields['queueId'])"),
        (numbers_of_text, "list(map(int, words))"),
        (searches_of_runs, "b'UNIQ_KEY' in record.properties"),
        (searches_of_runs, "properties.find(mark)"),
        (searches_of_runs, "MARK = b'UNIQ_KEY\\x01'"),
        (searches_of_runs, "x = run.split(b'a') if 'KEYS\\x01' in text else 0"),
        (loose_readers, "command.text('group')"),
        (loose_readers, "command.fields.get('topic', '')"),
        (loose_readers, "command.integer('queueId')"),
        (raw_text_in_logs, "_log.warning('group %s', group)"),
        (raw_text_in_logs, "_log.warning(f'group {group}')"),
        (raw_text_in_logs, "_log.warning('%d of %s', 1, command.fields['a'])"),
        (raw_text_in_logs, "_log.warning('%s %s', *names)"),
        (raw_text_in_logs, "_log.log(1, 'group %s', group)"),
    ],
)
def test_each_rule_finds_what_it_is_there_for(rule: object, code: str) -> None:
    assert list(rule("here", ast.parse(code))) != []  # type: ignore[operator]


def test_what_is_listed_is_needed() -> None:
    trees = dict(modules(SERVERS))
    assert [path for path in OTHER_NUMBERS if not list(numbers_of_text(path, trees[path]))] == []
