"""A space-time diagram: a column for each member, time from top to bottom, messages as arrows.

One page that needs no other file. Times are not to scale: events of one moment are side by side,
and silence is short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from dledger.pages.markup import as_html, bullets, child, new_page, note
from dledger.pages.sheet import legend
from jepsen_like.report.happened import Happened
from jepsen_like.report.lettering import Lettering, cut_to
from jepsen_like.report.space_time_rows import Rows, rows_of
from jepsen_like.report.style import SPACE_TIME_STYLE

WIDTH_MIN = 1120.0
TIME_RIGHT = 66.0
CLIENT_LEFT = 84.0
CLIENT_LANES = 4
LANE = 9.0
CLIENT_TEXT = CLIENT_LEFT + CLIENT_LANES * LANE + 6.0
FIRST_MEMBER = 390.0
# The room at the right of the last member's column, for its role and for notes.
LAST_ROOM = 145.0
# The widest role, "pre-candidate, term 99", stands beside a member's band.
COLUMN_MIN = 185.0
TOP = 46.0
BAND = 14.0
# Names of members are repeated after so many pixels, where the first ones are out of sight.
NAMES_EVERY = 620.0
# Times are written at events that are so many pixels apart.
TIMES_EVERY = 26.0
TEXT_CHARACTERS_MAX = 36
# How far a text moves if its place is taken, in pixels, and how often at most.
MOVE = 4.0
MOVES_MAX = 40
# How far a lost message gets, as a share of its way.
LOST_AT = 0.45
LOST_DROP = 14.0
# Where the words of a message are, as a share of its way.
WORDS_AT_BEGIN = (0.3, 0.5, 0.2, 0.4, 0.6)
WORDS_AT_END = (0.72, 0.6, 0.82, 0.5, 0.4)


@dataclass(frozen=True)
class SpaceTime:
    """The content of a page.

    `broken` is a sentence, and `test` repeats the run; both are empty if no promise was broken.
    `idle` are texts of messages that only show that all is well.
    """

    title: str
    broken: str
    members: Sequence[str]
    events: Sequence[Happened]
    idle: Collection[str] = ()
    facts: Sequence[str] = ()
    test: str = ""


def space_time_page(run: SpaceTime) -> str:
    """Return the page of a run."""
    root, body = new_page(run.title, SPACE_TIME_STYLE)
    child(body, "h1", run.title)
    box = child(body, "div", class_=f"verdict {'violation' if run.broken else 'nothing-found'}")
    child(box, "strong", "A promise was broken" if run.broken else "Nothing found")
    child(box, "span", run.broken)
    if run.facts:
        bullets(body, run.facts)
    rows = rows_of(run.events, run.idle, TOP)
    _legend(body)
    for line in rows.left_out:
        note(body, f"{line[0].upper()}{line[1:]}.")
    _Diagram(child(body, "div", class_="picture"), run, rows).draw()
    if run.test:
        child(body, "h2", "The same as a test")
        child(body, "pre", run.test)
    return as_html(root)


def _legend(body: Element) -> None:
    names = ("follower", "candidate", "leader", "frozen", "down")
    line = legend(body, [*((name, name) for name in names), ("lost", "message lost")])
    child(
        line,
        "span",
        "s: synced to disk, c: committed, a: applied, up to this entry. Times are not to scale.",
    )


class _Diagram:
    def __init__(self, parent: Element, run: SpaceTime, rows: Rows) -> None:
        self._run = run
        self._rows = rows
        self._end = rows.end + 30.0
        self._leaving: Counter[tuple[str, float]] = Counter()
        gaps = max(1, len(run.members) - 1)
        self._step = max(COLUMN_MIN, (WIDTH_MIN - LAST_ROOM - FIRST_MEMBER) / gaps)
        self._width = FIRST_MEMBER + gaps * self._step + LAST_ROOM
        self._x = {name: FIRST_MEMBER + at * self._step for at, name in enumerate(run.members)}
        self._shown = _told_apart(run.members, self._step - 8)
        label = f"Messages between {len(run.members)} members and their clients, over time"
        height = f"{self._end + 10:.0f}"
        width = f"{self._width:.0f}"
        svg = child(
            parent,
            "svg",
            role="img",
            viewBox=f"0 0 {width} {height}",
            aria_label=label,
            style=f"min-width: {width}px",
        )
        self._svg = child(svg, "g")
        self._texts = Lettering(svg)

    def draw(self) -> None:
        """Draw the back first. Texts that are written first get the places that they want."""
        self._names()
        self._times()
        self._notes()
        self._bands()
        self._calls()
        self._progress()
        self._messages()

    def _events(self, *kinds: str) -> list[tuple[Happened, float]]:
        pairs = zip(self._rows.events, self._rows.heights, strict=True)
        return [(one, y) for one, y in pairs if one.kind in kinds]

    def _text(
        self, words: str, x: float, y: float, kind: str, anchor: str = "start", class_: str = ""
    ) -> None:
        """Write words at a place, or as near below it as there is room."""
        places = [(x, y + MOVE * at) for at in range(MOVES_MAX)]
        self._texts.write(_short(words), places, kind, class_=class_, anchor=anchor, whole=words)

    def _line(self, x1: float, y1: float, x2: float, y2: float, class_: str) -> Element:
        return child(self._svg, "line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)

    # --- the frame --------------------------------------------------------------------------------

    def _names(self) -> None:
        top = 18.0
        while top < self._end:
            self._texts.write("clients", [(CLIENT_LEFT, top)], "heading")
            for name, x in self._x.items():
                cut = cut_to(self._shown[name], self._step - 8, "member")
                self._texts.write(cut, [(x, top)], "member", anchor="middle", whole=name)
            top += NAMES_EVERY

    def _times(self) -> None:
        written = -TIMES_EVERY
        for one, y in zip(self._rows.events, self._rows.heights, strict=True):
            if y - written >= TIMES_EVERY:
                written = y
                self._text(f"{one.at_s:.4f} s", TIME_RIGHT, y + 4, "tick", "end")
                self._line(TIME_RIGHT + 4, y, self._width, y, "grid")

    # --- members ----------------------------------------------------------------------------------

    def _bands(self) -> None:
        for name, x in self._x.items():
            state, role, since = self._before(name)
            for one, y in self._events("state", "role"):
                if one.who != name:
                    continue
                self._band(x, since, y, state, role)
                since = y
                if one.kind == "role":
                    role = one.what
                    kind, _, term = role.partition(" ")
                    self._text(f"{kind}, term {term}", x + BAND, y + 11, "role", class_=kind)
                elif one.what != state:
                    if one.what == "down":
                        role = ""
                    if state and one.what != "up":
                        self._text(one.what, x + BAND, y + 11, "role", class_="down")
                    if one.what == "down":
                        self._cross(x, y)
                    state = one.what
            self._band(x, since, self._end, state, role)

    def _before(self, name: str) -> tuple[str, str, float]:
        """Return the state and the role of a member where the picture begins."""
        shown = self._rows.events
        hidden = len(self._run.events)
        if shown:
            first = shown[0]
            hidden = next((at for at, one in enumerate(self._run.events) if one is first), hidden)
        state = role = ""
        for one in self._run.events[:hidden]:
            if one.who == name and one.kind == "state":
                state = one.what
                role = "" if state == "down" else role
            elif one.who == name and one.kind == "role":
                role = one.what
        return state, role, TOP - 14.0

    def _band(self, x: float, top: float, bottom: float, state: str, role: str) -> None:
        if bottom <= top or not state:
            return
        if state == "down":
            self._line(x, top, x, bottom, "life")
            return
        kind, _, term = role.partition(" ")
        class_ = kind.replace("pre-candidate", "candidate") or "follower"
        if term.isdigit() and int(term) % 2:
            class_ += " odd"
        if state == "frozen":
            class_ += " frozen"
        band = child(
            self._svg,
            "rect",
            x=x - BAND / 2,
            y=top,
            width=BAND,
            height=bottom - top,
            class_=f"member-band {class_}",
        )
        child(band, "title", f"{role} {state}")

    def _cross(self, x: float, y: float) -> None:
        self._line(x - 8, y - 8, x + 8, y + 8, "cross")
        self._line(x - 8, y + 8, x + 8, y - 8, "cross")

    def _progress(self) -> None:
        """Write what was synced, committed and applied, beside the member's band."""
        lines: dict[tuple[str, float], list[str]] = {}
        for one, y in self._events("synced", "committed", "applied"):
            if one.number >= 0:
                lines.setdefault((one.who, y), []).append(f"{one.kind[0]}{one.number}")
        for (name, y), words in lines.items():
            x = self._x[name]
            child(self._svg, "circle", cx=x, cy=y, r=2.5, class_="mark")
            self._text(" ".join(words), x - BAND / 2 - 4, y + 3, "progress", "end")

    # --- messages ---------------------------------------------------------------------------------

    def _messages(self) -> None:
        sent: dict[int, tuple[Happened, float]] = {}
        for one, y in self._events("sent"):
            sent[one.number] = (one, y)
        self._leaving = Counter((one.who, y) for one, y in sent.values())
        for one, y in self._events("arrived", "lost"):
            if one.number in sent:
                first, top = sent[one.number]
                self._arrow(first, top, y, is_lost=one.kind == "lost")
        ended = {one.number for one, _ in self._events("arrived", "lost")}
        for number, (one, y) in sent.items():
            if number not in ended:
                self._arrow(one, y, y + LOST_DROP, is_lost=False, on_its_way=True)

    def _arrow(
        self, one: Happened, top: float, bottom: float, *, is_lost: bool, on_its_way: bool = False
    ) -> None:
        x1, x2 = self._x[one.who], self._x[one.to]
        side = BAND / 2 if x2 > x1 else -BAND / 2
        x1, x2 = x1 + side, x2 - side
        if is_lost or on_its_way:
            x2 = x1 + (x2 - x1) * LOST_AT
            bottom = min(bottom, top + LOST_DROP)
        idle = one.what in self._run.idle
        class_ = "lost" if is_lost else "idle" if idle else _class_of(one.what)
        line = self._line(x1, top, x2, bottom, f"message {class_}")
        child(line, "title", f"{one.who} to {one.to}: {one.what}{', lost' if is_lost else ''}")
        if is_lost:
            self._line(x2 - 4, bottom - 4, x2 + 4, bottom + 4, "cross small")
            self._line(x2 - 4, bottom + 4, x2 + 4, bottom - 4, "cross small")
        elif not on_its_way:
            self._head(x1, top, x2, bottom, class_)
        if not idle:
            # If many messages leave at once, the words of each are where it arrives.
            shares = WORDS_AT_END if self._leaving[one.who, top] > 1 else WORDS_AT_BEGIN
            places = [(x1 + (x2 - x1) * at, top + (bottom - top) * at - 2) for at in shares]
            self._texts.write(_short(one.what), places, "said", anchor="middle", whole=one.what)

    def _head(self, x1: float, y1: float, x2: float, y2: float, class_: str) -> None:
        """Draw the head of an arrow. SVG markers would each need a colour of their own."""
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5 or 1.0
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        back_x, back_y = x2 - 7 * dx, y2 - 7 * dy
        points = (
            f"{x2:.1f},{y2:.1f} {back_x - 3 * dy:.1f},{back_y + 3 * dx:.1f} "
            f"{back_x + 3 * dy:.1f},{back_y - 3 * dx:.1f}"
        )
        child(self._svg, "polygon", points=points, class_=f"head {class_}")

    # --- clients ----------------------------------------------------------------------------------

    def _calls(self) -> None:
        ends = {one.number: (one, y) for one, y in self._events("answered")}
        lanes = [0.0] * CLIENT_LANES
        text_free = 0.0
        for one, y in self._events("called"):
            end = ends.get(one.number)
            bottom = end[1] if end is not None else self._end
            lane = min(range(CLIENT_LANES), key=lambda at: lanes[at])
            lanes[lane] = bottom + 2
            x = CLIENT_LEFT + lane * LANE
            outcome = "open" if end is None else _outcome(end[0].what)
            bar = child(
                self._svg,
                "rect",
                x=x,
                y=y,
                width=LANE - 3,
                height=max(3.0, bottom - y),
                class_=f"call {outcome}",
            )
            said = f"{one.what} at {one.to or 'no member'}"
            child(bar, "title", f"{said}: {end[0].what if end is not None else 'no answer'}")
            text_y = max(y + 4, text_free)
            self._text(one.what, CLIENT_TEXT, text_y, "client")
            text_free = text_y + 11
            if end is not None:
                self._text(
                    f"= {end[0].what}", CLIENT_TEXT, text_free, "client", class_=f"answer {outcome}"
                )
                text_free += 12
            if one.to in self._x:
                side = self._x[one.to] - BAND / 2
                self._line(x + LANE - 3, y, side, y, "asked")
                if end is not None:
                    self._line(side, bottom, x + LANE - 3, bottom, "asked")

    def _notes(self) -> None:
        for one, y in self._events("note"):
            class_ = "broken" if one.what.startswith("broken") else "fault"
            self._line(TIME_RIGHT + 4, y, self._width, y, f"note {class_}")
            self._text(one.what, self._width - 4, y - 3, "note-text", "end", class_)


def _short(words: str) -> str:
    return words if len(words) <= TEXT_CHARACTERS_MAX else f"{words[:TEXT_CHARACTERS_MAX]}…"


def _told_apart(names: Sequence[str], room: float) -> dict[str, str]:
    """Return names as they are shown: if one is too long, without the beginning that all share."""
    shared = 0
    if len(names) > 1 and any(cut_to(name, room, "member") != name for name in names):
        while len({name[: shared + 1] for name in names}) == 1:
            shared += 1
    return {name: f"…{name[shared:]}" if shared else name for name in names}


def _class_of(what: str) -> str:
    if "vote" in what:
        return "votes"
    return "entries" if what.startswith(("entr", "has", "snapshot")) else "other"


def _outcome(what: str) -> str:
    if what == "certainly not done":
        return "fail"
    return "info" if what == "done or not" else "ok"
