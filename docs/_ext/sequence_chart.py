"""Plays a scenario on the library's own core, and draws what its members said to each other.

The picture is a recording: every arrow is a message that the core sent in that run. Lines of the
file that are comments stand in the picture as captions. A comment `# hide: KIND, KIND` leaves
messages of these kinds out, and the picture begins at `# draw from here`, if that is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

from dledger.pages.markup import child
from docs._ext.state_diagram import SOFT, STRONG, TEXT, as_svg, draw_box, new_picture, outlined
from tests.dledger.scenarios.scenario_group import ScenarioGroup
from tests.dledger.scenarios.scenario_language import Scenario
from tests.dledger.scenarios.scenario_member import ScenarioMember, Settings
from tests.dledger.scenarios.scenario_messages import Sent, index_text

HIDE = re.compile(r"# hide: (.+)")
BEGIN = "# draw from here"

# Calls from outside of the group, by the line that makes them.
CALLS = {
    r"propose (\w+) (\d+)": r"new entries: \2",
    r"change (\w+)[^:]*: (.+)": r"change: \2",
    r"transfer (\w+) to (\w+)": r"hand over to \2",
    r"read (\w+)": "read",
}

COLUMN, MARGIN, TOP = 240, 165, 50
ROW, HALF_ROW = 26, 15
LEAVES_AFTER = 8  # what a turn sends leaves a little below what caused it


@dataclass
class Flight:
    """A message, where it leaves, and where it arrives if it does."""

    sent: Sent
    left_at: float
    arrived_at: float | None = None
    lost: bool = False


@dataclass(frozen=True)
class Note:
    """Words beside a member's line; a sync has a mark on the line as well."""

    member: str
    words: str
    at: float
    sync: bool = False


@dataclass(frozen=True)
class Caption:
    """Words over the whole width."""

    words: str
    at: float


class Recording:
    """What happened, from top to bottom."""

    def __init__(self) -> None:
        self.at = float(TOP)
        self.members: list[str] = []
        self.flights: list[Flight] = []
        self.notes: list[Note] = []
        self.captions: list[Caption] = []
        self.hidden: frozenset[str] = frozenset()
        self._known: dict[str, tuple[object, ...]] = {}

    def begin(self) -> None:
        """Forget what happened so far."""
        self.at = float(TOP)
        for kept in (self.flights, self.notes, self.captions):
            kept.clear()

    def down(self, distance: float = ROW) -> float:
        """The place of what happens next."""
        self.at += distance
        return self.at

    def note(self, member: str, words: str, *, sync: bool = False) -> None:
        """Write something beside a member's line."""
        self.notes.append(Note(member, words, self.at, sync))

    def caption(self, words: str) -> None:
        """Write something over the whole width."""
        self.captions.append(Caption(words, self.down(ROW)))
        self.down(HALF_ROW / 2)

    def leaves(self, sent: Sent, *, lost: bool) -> None:
        """A member sent that."""
        if sent.kind not in self.hidden:
            self.flights.append(Flight(sent, self.at + LEAVES_AFTER, lost=lost))

    def arrives(self, sent: Sent) -> None:
        """It came to its end."""
        for flight in self.flights:
            if flight.sent is sent and flight.arrived_at is None:
                flight.arrived_at = self.down()
                return

    def drops(self, sent: Sent) -> None:
        """The network lost it."""
        for flight in self.flights:
            if flight.sent is sent:
                flight.lost = True

    def looks_at(self, member: ScenarioMember) -> None:
        """Note what changed in a member since it was last looked at."""
        core = member.core
        if core is None:
            return
        state, view = core.state, core.view
        now = (
            (state.role.value, state.term),
            state.committed,
            view.before_begin,
            tuple(sorted(state.membership.configuration.voters)),
        )
        before, self._known[member.name] = self._known.get(member.name), now
        if before is None:
            return
        words = []
        if now[0] != before[0]:
            words.append(f"{state.role.value}, term {state.term}")
        if now[2] != before[2]:
            words.append(f"log begins at {view.before_begin + 1}")
        if now[1] != before[1]:
            words.append(f"committed {index_text(state.committed)}")
        if now[3] != before[3]:
            words.append("voters " + " ".join(now[3]))
        for each in words:
            self.down(HALF_ROW)
            self.note(member.name, each)

    def logs_shrink(self, member: ScenarioMember, last_before: int) -> None:
        """Note that a member cut its log."""
        if member.core is not None and member.core.view.last_index < last_before:
            self.down(HALF_ROW)
            self.note(member.name, f"cut behind {index_text(member.core.view.last_index)}")


class RecordedGroup(ScenarioGroup):
    """A group of a scenario that tells a recording what happens."""

    def __init__(self, settings: Settings, recording: Recording) -> None:
        self.recording = recording
        super().__init__(settings)
        recording.members = list(self.members)
        for member in self.members.values():
            recording.looks_at(member)

    def join(self, name: str) -> None:
        """As in a scenario."""
        super().join(name)
        self.recording.members = list(self.members)
        self.recording.looks_at(self.members[name])

    def turn(self, member: ScenarioMember) -> None:
        """As in a scenario."""
        count = len(self.sent)
        super().turn(member)
        self.recording.looks_at(member)
        for sent in self.sent[count:]:
            self.recording.leaves(sent, lost=(sent.sender, sent.receiver) in self.cuts)

    def deliver(self, messages: Sequence[Sent]) -> None:
        """As in a scenario; each arrival has a place of its own."""
        for sent in messages:
            self.recording.arrives(sent)
            receiver = self.members.get(sent.receiver)
            core = receiver.core if receiver is not None else None
            last = core.view.last_index if core is not None else -1
            super().deliver([sent])
            if receiver is not None:
                self.recording.logs_shrink(receiver, last)

    def end_sync(self, member: ScenarioMember) -> None:
        """As in a scenario."""
        if member.syncs:
            sync = member.syncs[0]
            words = []
            if sync.work.hard_state is not None and sync.work.hard_state.voted_for:
                words.append(f"vote {sync.work.hard_state.voted_for}")
            if sync.image.last_index > member.image.last_index:
                words.append(f"log to {sync.image.last_index}")
            if words:
                self.recording.down()
                self.recording.note(member.name, "on disk: " + ", ".join(words), sync=True)
        super().end_sync(member)


class RecordedScenario(Scenario):
    """Plays lines, and draws them."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.recording = Recording()

    @property
    def group(self) -> ScenarioGroup:
        """The group; made when it is first needed."""
        if self._group is None:
            if not self.settings.names:
                raise ValueError("the first line must be: members NAME NAME ...")
            self._group = RecordedGroup(self.settings, self.recording)
        return self._group

    def play(self, line: str) -> None:
        """Carry out one line; a comment becomes a caption, once there is a group."""
        if hide := HIDE.fullmatch(line.strip()):
            self.recording.hidden = frozenset(part.strip() for part in hide[1].split(","))
        elif line.strip() == BEGIN:
            self.recording.begin()
        elif line.startswith("# ") and self._group is not None:
            self.recording.caption(line[2:].strip())
        if line.startswith("drop "):
            flying = list(self.group.flight)
            super().play(line)
            kept = {id(sent) for sent in self.group.flight}
            for sent in flying:
                if id(sent) not in kept:
                    self.recording.drops(sent)
            return
        for form, words in CALLS.items():
            if call := re.match(form, line):
                _ = self.group
                self.recording.down()
                self.recording.note(call[1], call.expand(words))
        super().play(line)


def record(path: Path) -> Recording:
    """Play a file. Raises ScenarioMalformed, ScenarioFailed: what it expects must hold."""
    scenario = RecordedScenario(path.name)
    for line in path.read_text(encoding="utf-8").splitlines():
        scenario.play(line)
    return scenario.recording


def draw(recording: Recording, title: str) -> str:
    """The picture of a recording."""
    columns = {name: MARGIN + number * COLUMN for number, name in enumerate(recording.members)}
    width = max(columns.values()) + MARGIN
    height = recording.at + 40
    name = "arrow-" + re.sub(r"\W+", "-", title.lower())
    svg = new_picture(title, width, height, name)
    for member, x in columns.items():
        _line(svg, x, 40, x, height - 8, stroke_dasharray="3 4")
        draw_box(svg, x - 38, 10, 76, 30)
        _text(svg, x, 30, member, text_anchor="middle", font_size=14, font_weight="bold")
    words = Element("g")  # over all lines
    for flight in recording.flights:
        _arrow(svg, words, flight, columns, f"url(#{name})")
    svg.extend(words)
    first = recording.members[0]
    for note in recording.notes:
        _note(svg, note, columns[note.member], left=note.member == first)
    for caption in recording.captions:
        _text(svg, 12, caption.at, caption.words, font_style="italic")
    return as_svg(svg)


def _arrow(
    svg: Element, words: Element, flight: Flight, columns: dict[str, int], marker: str
) -> None:
    """The line and its words; nothing for what is still on its way at the end."""
    if flight.arrived_at is None and not flight.lost:
        return
    start, end = float(columns[flight.sent.sender]), float(columns[flight.sent.receiver])
    step = 6 if end > start else -6
    if flight.arrived_at is None:
        end = start + (end - start) * 0.6
        there = flight.left_at + ROW / 2
        _line(svg, start, flight.left_at, end, there)
        look = {"text_anchor": "middle", "font_size": 15, "fill": "#d0463b"}
        _text(svg, end, there + 5, "✗", **look)
        part = 0.5
    else:
        there = flight.arrived_at
        _line(svg, start, flight.left_at, end - step, there, marker_end=marker)
        # Near the receiver's end, where arrows that left together have come apart.
        part = 0.58
    x, y = start + (end - start) * part, flight.left_at + (there - flight.left_at) * part - 3
    _text(words, x, y, flight.sent.text, text_anchor="middle")


def _note(svg: Element, note: Note, x: float, *, left: bool) -> None:
    if note.sync:
        child(svg, "rect", x=x - 5, y=note.at - 9, width=10, height=10, fill=STRONG)
    x, anchor = (x - 10, "end") if left else (x + 10, "start")
    weight = "normal" if note.sync else "bold"
    _text(svg, x, note.at, note.words, text_anchor=anchor, fill=STRONG, font_weight=weight)


def _line(svg: Element, x1: float, y1: float, x2: float, y2: float, **look: object) -> None:
    child(svg, "line", None, x1=x1, y1=y1, x2=x2, y2=y2, stroke=SOFT, stroke_width=1.3, **look)


def _text(svg: Element, x: float, y: float, words: str, **look: object) -> None:
    child(svg, "text", words, x=x, y=y, **{"fill": TEXT, **outlined(3.5), **look})


def picture(path: Path) -> Callable[[], str]:
    """Draws that file when it is asked for; the title is the file's name."""
    return lambda: draw(record(path), path.stem.replace("_", " "))
