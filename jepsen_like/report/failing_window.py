"""The failing window: the operations around a problem, large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from dledger.pages.markup import child
from jepsen_like.checkers.report import Problem
from jepsen_like.history.operation import EventType, Operation
from jepsen_like.history.value import shown
from jepsen_like.report.frame import Frame, Picture
from jepsen_like.report.lettering import cut_to, text_width
from jepsen_like.report.timeline import CLASSES
from jepsen_like.report.told_run import Fault

ROW = 22.0
AXIS = 24.0
# Operations in one window: as many as a person reads through.
OPERATIONS_MAX = 40
# The margin before and after the operations of a problem, as a share of their time.
MARGIN = 0.15
MARGIN_NS_MIN = 1_000_000
VALUE_LETTERS_MAX = 40


class FailingWindow(NamedTuple):
    """The operations around a problem, in the order of their calls.

    `named` are the places of those that the problem names; `left_out` counts the others in the
    frame.
    """

    frame: Frame
    operations: Sequence[Operation]
    named: frozenset[int]
    left_out: int


def failing_window(
    problem: Problem, operations: Sequence[Operation], faults: Sequence[Fault], zero_ns: int
) -> FailingWindow | None:
    """Return the window of a problem; None if the problem names no operation.

    It has the operations that the problem names and, as far as there is room, others on the same
    objects that ran beside them.
    """
    lines = set(problem.lines)
    named = [one for one in operations if one.invoked_line in lines or one.ended_line in lines]
    named = named[:OPERATIONS_MAX]
    if not named:
        return None
    begin_ns = min(one.invoked_ns for one in named)
    end_ns = max(_end_ns(one) for one in named)
    margin_ns = max(MARGIN_NS_MIN, round((end_ns - begin_ns) * MARGIN))
    begin_ns, end_ns = begin_ns - margin_ns, end_ns + margin_ns
    of_problem = {id(one) for one in named}
    keys = {repr(one.key) for one in named}
    beside = [
        one
        for one in operations
        if id(one) not in of_problem
        and repr(one.key) in keys
        and one.invoked_ns <= end_ns
        and _end_ns(one) >= begin_ns
    ]
    middle_ns = named[-1].invoked_ns
    beside.sort(key=lambda one: abs(one.invoked_ns - middle_ns))
    kept = beside[: OPERATIONS_MAX - len(named)]
    rows = sorted([*named, *kept], key=lambda one: one.invoked_line)
    places = frozenset(at for at, one in enumerate(rows) if id(one) in of_problem)
    frame = Frame(begin_ns, end_ns, zero_ns, faults)
    return FailingWindow(frame, rows, places, len(beside) - len(kept))


def draw_failing_window(parent: Element, frame: Frame, window: FailingWindow) -> None:
    """Draw the window below `parent`, on a sheet: a row an operation, with its call and its
    answer.
    """
    bottom = 4 + ROW * len(window.operations)
    picture = frame.picture(parent, bottom + AXIS, "the operations around the problem")
    frame.bands(picture, 4, bottom)
    frame.axis(picture, 4, bottom)
    for at, operation in enumerate(window.operations):
        top = 4 + at * ROW
        where = "" if operation.member is None else f" at {operation.member}"
        frame.name(picture, f"client {operation.process}{where}", top + ROW - 7)
        may_still_happen = operation.outcome is EventType.INFO
        end_ns = frame.end_ns if may_still_happen else _end_ns(operation)
        left, right = frame.time.at(operation.invoked_ns), frame.time.at(end_ns)
        named = " named" if at in window.named else ""
        class_ = f"{CLASSES[operation.outcome]}{named}"
        width = max(2.0, right - left)
        bar = child(
            picture.svg, "rect", x=left, y=top + 3, width=width, height=ROW - 6, class_=class_
        )
        child(bar, "title", str(operation))
        _label(picture, frame, _call(operation), left, right, top + ROW - 7)
    if window.left_out:
        more = f"{window.left_out} more operations on the same objects ran in this time."
        child(parent, "p", more)


def _label(picture: Picture, frame: Frame, text: str, left: float, right: float, y: float) -> None:
    """Write beside a bar: after it if there is room, else before it, else at the left edge."""
    needed = text_width(text, "call")
    if right + 5 + needed <= frame.sheet.right:
        picture.texts.write(text, [(right + 5, y)], "call")
    elif left - 5 - needed >= frame.sheet.left:
        picture.texts.write(text, [(left - 5, y)], "call", anchor="end")
    else:
        begin = max(frame.sheet.left, min(left, frame.sheet.right - needed - 5)) + 5
        cut = cut_to(text, frame.sheet.right - begin, "call")
        picture.texts.write(cut, [(begin, y)], "call", class_="inside", whole=text)


def _call(operation: Operation) -> str:
    text = operation.function
    if operation.value is not None:
        text += f" {shown(operation.value, VALUE_LETTERS_MAX)}"
    if operation.ok and operation.result is not None and operation.result != operation.value:
        text += f" → {shown(operation.result, VALUE_LETTERS_MAX)}"
    if operation.outcome is EventType.INFO:
        text += " ?"
    elif operation.outcome is EventType.FAIL:
        text += " ✗"
    return text


def _end_ns(operation: Operation) -> int:
    return operation.invoked_ns if operation.ended_ns is None else operation.ended_ns
