"""Conditions in RocketMQ's SQL92, compiled once and evaluated for each message.

Properties are texts, and are converted to the type of the other side of a comparison. A comparison
is neither true nor false if the property is absent, or is not a number although one is needed. AND,
OR and NOT use SQL's three values. A message is wanted if its condition is true.

Source: RocketMQ's filter module; docs/filters.md lists the differences.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from broker.errors import RequestRefused
from remoting.wire.codes import ResponseCode
from remoting.wire.field_values import read_decimal

if TYPE_CHECKING:
    from lark import Lark, Tree

# Compiled in some milliseconds; people write some hundred characters.
MAX_CONDITION_CHARACTERS: Final = 2048

# Of nested NOT, AND and OR; each takes a frame of the stack for every message.
MAX_DEPTH: Final = 50

# Comparisons and tests; each takes about a microsecond per message with short properties.
MAX_TERMS: Final = 200

_RESERVED: Final = frozenset({"AND", "BETWEEN", "FALSE", "IN", "IS", "NOT", "NULL", "OR", "TRUE"})

# Consumers send their condition with every heartbeat, and conditions are few. A compiled one takes
# some 100 bytes per character, so that the short ones take 16 MB at most, and the long ones 24 MB.
_SHORT_CONDITION_CHARACTERS: Final = 256
_REMEMBERED_SHORT_CONDITIONS: Final = 512
_REMEMBERED_LONG_CONDITIONS: Final = 128

Value: TypeAlias = str | int | float | bool | None
Properties: TypeAlias = Mapping[str, str]
_Evaluates: TypeAlias = Callable[[Properties], Value]


class Condition:
    """A condition on the properties of messages.

    Attributes:
        text: as the consumer wrote it.
        names: the properties that it reads, by their bytes in a record.
    """

    __slots__ = ("_evaluate", "_looks", "names", "text")

    def __init__(self, text: str, looks: Mapping[str, int], evaluate: _Evaluates) -> None:
        self.text = text
        self.names = {name.encode(): name for name in looks}
        self._looks = looks
        self._evaluate = evaluate

    def cost(self, properties: Properties) -> int:
        """Return how many characters `is_met` reads at most: those of a property for each use of
        it.
        """
        return sum([self._looks[name] * len(value) for name, value in properties.items()])

    def is_met(self, properties: Properties) -> bool:
        return self._evaluate(properties) is True


def condition(text: str) -> Condition:
    """Compile a condition.

    Raises RequestRefused (23): it is malformed, or is too long, too deep or has too many terms.
    """
    if len(text) > MAX_CONDITION_CHARACTERS:
        raise _refused(f"{len(text)} characters: at most {MAX_CONDITION_CHARACTERS}")
    return (_short if len(text) <= _SHORT_CONDITION_CHARACTERS else _long)(text)


def _compiled(text: str) -> Condition:
    from lark.exceptions import UnexpectedInput  # noqa: PLC0415  # see `_parser`

    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        where = "at its end" if error.column in (None, -1) else f"in column {error.column}"
        raise _refused(f"it cannot be read {where}") from None
    reader = _Reader()
    evaluate = reader.truth(tree, 0)
    return Condition(text, reader.looks, evaluate)


_short = functools.lru_cache(maxsize=_REMEMBERED_SHORT_CONDITIONS)(_compiled)
_long = functools.lru_cache(maxsize=_REMEMBERED_LONG_CONDITIONS)(_compiled)


def load_parser() -> None:
    """Read the grammar now, rather than for the first condition."""
    _parser()


@functools.cache
def _parser() -> "Lark":
    # Programs that only read a broker's log start faster without it.
    from lark import Lark  # noqa: PLC0415

    grammar = files("broker.filters").joinpath("grammar.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", maybe_placeholders=False)


def _refused(problem: str) -> RequestRefused:
    return RequestRefused(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"the SQL92 condition is wrong: {problem}"
    )


class _Reader:
    """Compiles one parsed condition.

    `looks`: how often it reads each property, by the property's name.
    """

    def __init__(self) -> None:
        self.looks: Counter[str] = Counter()
        self._terms = 0

    # --- truth values ---------------------------------------------------------------------------

    def truth(self, node: "Tree[Any]", depth: int) -> _Evaluates:
        """Compile a node that is true, false or neither."""
        _check_depth(depth)
        self._count()
        children: list[Any] = list(node.children)
        match str(node.data):
            case "disjunction":
                return _any([self.truth(child, depth + 1) for child in children])
            case "conjunction":
                return _all([self.truth(child, depth + 1) for child in children])
            case "negated":
                return _not(self.truth(children[0], depth + 1))
            case "comparison":
                left, sign, right = children
                return self._comparison(left, str(sign), right, depth)
            case "between":
                return self._between(children, depth)
            case "not_between":
                return _not(self._between(children, depth))
            case "in_texts":
                return self._in_texts(children)
            case "not_in_texts":
                return _not(self._in_texts(children))
            case "is_null":
                operand = self._operand(children[0], depth + 1)
                return lambda properties: operand(properties) is None
            case "is_not_null":
                operand = self._operand(children[0], depth + 1)
                return lambda properties: operand(properties) is not None
            case "text_test":
                return self._text_test(children)
            case "not_text_test":
                return _not(self._text_test(children))
            case "true":
                return lambda _properties: True
            case "false":
                return lambda _properties: False
            case "property":
                return _as_truth(self._operand(node, depth))
            case _:
                raise _refused("a number or a text stands where a condition has to")

    def _comparison(
        self, left: "Tree[Any]", sign: str, right: "Tree[Any]", depth: int
    ) -> _Evaluates:
        for side in (left, right):
            if sign not in ("=", "<>", "!=") and str(side.data) in ("text", "true", "false"):
                raise _refused(f"a text or a truth value beside {sign}: compare numbers")
        compare = _COMPARISONS[sign]
        one, other = self._operand(left, depth + 1), self._operand(right, depth + 1)
        return lambda properties: compare(one(properties), other(properties))

    def _between(self, children: Sequence["Tree[Any]"], depth: int) -> _Evaluates:
        value, low, high = (self._operand(child, depth + 1) for child in children)
        for child in children[1:]:
            if str(child.data) in ("text", "true", "false"):
                raise _refused("BETWEEN is for numbers")
        if all(_is_number(child) for child in children[1:]):
            least, most = _number(low({})), _number(high({}))
            if least is not None and most is not None and least > most:
                raise _refused(f"BETWEEN {least} AND {most}: the smaller one comes first")
        at_least, at_most = _COMPARISONS[">="], _COMPARISONS["<="]
        return _all(
            [
                lambda properties: at_least(value(properties), low(properties)),
                lambda properties: at_most(value(properties), high(properties)),
            ]
        )

    def _in_texts(self, children: Sequence["Tree[Any]"]) -> _Evaluates:
        name = self._name(children[0], "IN")
        self._count(len(children[1].children))
        texts = frozenset(_text(child) for child in children[1].children)

        def evaluate(properties: Properties) -> Value:
            value = properties.get(name)
            return None if value is None else value in texts

        return evaluate

    def _text_test(self, children: Sequence[Any]) -> _Evaluates:
        tested, test, wanted = children
        name, text = self._name(tested, str(test).upper()), _text(wanted)
        holds = _TEXT_TESTS[str(test).lower()](text)

        def evaluate(properties: Properties) -> Value:
            value = properties.get(name)
            return None if value is None else holds(value)

        return evaluate

    # --- operands -------------------------------------------------------------------------------

    def _operand(self, node: "Tree[Any]", depth: int) -> _Evaluates:
        _check_depth(depth)
        match str(node.data):
            case "property":
                name = self._name(node, "")
                return lambda properties: properties.get(name)
            case "number":
                number = _literal(str(node.children[0]))
                return lambda _properties: number
            case "text":
                text = _text(node)
                return lambda _properties: text
            case "signed":
                sign, signed = node.children
                operand = self._operand(signed, depth + 1)
                if str(sign) == "-":
                    return _negative(operand)
                return lambda properties: _number(operand(properties))
            case _:
                return self.truth(node, depth)

    def _name(self, node: "Tree[Any]", what: str) -> str:
        if str(node.data) != "property":
            raise _refused(f"{what} is for properties")
        name = str(node.children[0])
        if name.upper() in _RESERVED:
            raise _refused(f"{name} stands where a property has to")
        self.looks[name] += 1
        return name

    def _count(self, terms: int = 1) -> None:
        self._terms += terms
        if self._terms > MAX_TERMS:
            raise _refused(f"more than {MAX_TERMS} terms")


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _refused(f"more than {MAX_DEPTH} conditions within each other")


# --- three values -------------------------------------------------------------------------------


def _any(parts: Sequence[_Evaluates]) -> _Evaluates:
    def evaluate(properties: Properties) -> Value:
        found: Value = False
        for part in parts:
            value = part(properties)
            if value is True:
                return True
            if value is None:
                found = None
        return found

    return evaluate


def _all(parts: Sequence[_Evaluates]) -> _Evaluates:
    def evaluate(properties: Properties) -> Value:
        found: Value = True
        for part in parts:
            value = part(properties)
            if value is False:
                return False
            if value is None:
                found = None
        return found

    return evaluate


def _not(part: _Evaluates) -> _Evaluates:
    def evaluate(properties: Properties) -> Value:
        value = part(properties)
        return None if value is None else not value

    return evaluate


def _as_truth(operand: _Evaluates) -> _Evaluates:
    """Evaluate a property that stands alone: it is true if its text is."""

    def evaluate(properties: Properties) -> Value:
        value = operand(properties)
        return None if value is None else str(value).lower() == "true"

    return evaluate


# --- comparisons --------------------------------------------------------------------------------


def _equal(left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    if isinstance(left, bool) or isinstance(right, bool):
        return str(left).lower() == str(right).lower()
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    one, other = _number(left), _number(right)
    return None if one is None or other is None else one == other


def _unequal(left: Value, right: Value) -> Value:
    equal = _equal(left, right)
    return None if equal is None else not equal


def _ordered(holds: Callable[[float, float], bool]) -> Callable[[Value, Value], Value]:
    def compare(left: Value, right: Value) -> Value:
        one, other = _number(left), _number(right)
        return None if one is None or other is None else holds(one, other)

    return compare


_COMPARISONS: Final[Mapping[str, Callable[[Value, Value], Value]]] = {
    "=": _equal,
    "<>": _unequal,
    "!=": _unequal,
    ">": _ordered(lambda one, other: one > other),
    ">=": _ordered(lambda one, other: one >= other),
    "<": _ordered(lambda one, other: one < other),
    "<=": _ordered(lambda one, other: one <= other),
}

# Python's search for one text in another takes up to the product of their lengths. In texts shorter
# than this that is little.
_SHORT_CHARACTERS: Final = 256


def _contains(text: str) -> Callable[[str], bool]:
    """Return a test whose time is linear in the length of the value."""
    search: Callable[[str], object] | None = None

    def holds(value: str) -> bool:
        nonlocal search
        if len(value) < _SHORT_CHARACTERS:
            return text in value
        if search is None:
            # `re` finds texts without special characters by the table of Knuth, Morris and Pratt.
            search = re.compile(re.escape(text)).search
        return search(value) is not None

    return holds


_TEXT_TESTS: Final[Mapping[str, Callable[[str], Callable[[str], bool]]]] = {
    "contains": _contains,
    "startswith": lambda text: lambda value: value.startswith(text),
    "endswith": lambda text: lambda value: value.endswith(text),
}


def _number(value: Value) -> int | float | None:
    if value is None or isinstance(value, bool):
        return None
    if not isinstance(value, str):
        return value
    return read_decimal(value)


def _negative(operand: _Evaluates) -> _Evaluates:
    def evaluate(properties: Properties) -> Value:
        number = _number(operand(properties))
        return None if number is None else -number

    return evaluate


def _literal(text: str) -> int | float:
    if text[-1] in "lL":
        text = text[:-1]
    number = _number(text)
    if number is None:
        raise _refused(f"the number {text:.20} is too large")
    return number


def _text(node: "Tree[Any]") -> str:
    return str(node.children[0])[1:-1].replace("''", "'")


def _is_number(node: "Tree[Any]") -> bool:
    while str(node.data) == "signed":
        node = node.children[1]
    return str(node.data) == "number"
