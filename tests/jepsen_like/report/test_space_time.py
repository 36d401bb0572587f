"""Space-time diagrams: what is drawn, how much of it, and that a browser shows it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import jepsen_like
from jepsen_like.report.happened import Happened
from jepsen_like.report.space_time import SpaceTime, space_time_page
from jepsen_like.report.space_time_rows import EVENTS_MAX, rows_of
from jepsen_like.simulation.service.spoken_message import IDLE
from tests.jepsen_like.services import Register
from tests.picture_texts import PAIRS_IN_A_BROWSER, without_policy


def picture_of_a_run() -> str:
    with jepsen_like.simulate(Register, nodes=3, seed=5) as world:
        world.append(b"one")
        world.kill("leader")
        world.append(b"two & <three>")
        world.partition("leader")
        world.submit(b"four")
        world.run_for(1.0)
    assert world.journal is not None
    names = [member.name for member in world.members]
    return space_time_page(
        SpaceTime("a run", "it is wrong", names, list(world.journal.events), IDLE, ["3 members"])
    )


def test_a_page_shows_members_messages_calls_and_what_is_wrong() -> None:
    page = picture_of_a_run()
    for shown in ("it is wrong", ">n2<", "leader, term 1", "vote? term 1", "= entry 1, ''", "down"):
        assert shown in page, shown
    assert 'class="message lost"' in page
    assert "two &amp; &lt;three&gt;" in page
    assert "src=" not in page
    assert "href=" not in page


def event(at_s: float, number: int, what: str = "entry 1") -> Happened:
    return Happened(at_s, "sent", "n0", what, number, "n1")


def test_a_long_run_is_cut_to_its_last_events_and_the_page_says_so() -> None:
    events = [event(number * 0.01, number) for number in range(5_000)]
    rows = rows_of(events, IDLE, 0.0)
    assert list(rows.events) == events[-EVENTS_MAX:]
    assert rows.left_out == [f"these are the last {EVENTS_MAX} of 5,000 events"]
    page = space_time_page(SpaceTime("long", "", ["n0", "n1"], events, IDLE))
    assert "These are the last 600 of 5,000 events." in page
    assert len(page) < 500_000


def test_heartbeats_are_the_first_to_be_left_out() -> None:
    events = [event(number * 0.01, number, IDLE[number % 2]) for number in range(1_000)]
    events.append(event(11.0, 1_000))
    rows = rows_of(events, IDLE, 0.0)
    assert list(rows.events) == events[-1:]
    assert "1,000 heartbeats" in rows.left_out[0]


def test_what_happens_at_once_stands_side_by_side_and_silence_is_short() -> None:
    rows = rows_of([event(1.0, 1), event(1.0, 2), event(1.001, 3), event(99.0, 4)], IDLE, 50.0)
    first, second, third, fourth = rows.heights
    assert first == second == 50.0
    assert second < third < fourth < third + 50.0


def test_a_run_without_events_has_a_page() -> None:
    assert "Nothing found" in space_time_page(SpaceTime("none", "", ["n0"], [], IDLE))


def test_a_band_goes_on_from_before_the_first_event_that_is_shown() -> None:
    events = [Happened(0.0, "state", "n0", "up"), Happened(0.1, "role", "n0", "leader 1")]
    events += [event(1.0 + number, number) for number in range(EVENTS_MAX)]
    assert 'class="member-band leader' in space_time_page(SpaceTime("", "", ["n0", "n1"], events))


# --- in a browser ---------------------------------------------------------------------------------

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")
# The page says how it was laid out.
MEASURE = f"""<script>
const band = document.querySelector(".member-band.leader");
Object.assign(document.body.dataset, {{
  width: document.documentElement.scrollWidth,
  fill: getComputedStyle(band).fill,
  height: Math.round(band.getBoundingClientRect().height),
  pairs: {PAIRS_IN_A_BROWSER},
}});
</script>"""


@in_a_browser
@pytest.mark.parametrize("width", [500, 1300])
def test_a_browser_shows_the_page_narrow_and_wide(tmp_path: Path, width: int) -> None:
    assert CHROMIUM is not None
    page = tmp_path / "page.html"
    page.write_text(without_policy(picture_of_a_run()) + MEASURE, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--dump-dom"]
    options += [f"--window-size={width},1000", f"--user-data-dir={tmp_path / 'profile'}"]
    told = subprocess.run(
        [CHROMIUM, *options, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    measured = dict(re.findall(r'data-(\w+)="([^"]*)"', told.stdout))
    assert measured["width"] == str(width), "the page itself must not scroll sideways"
    assert measured["fill"] in ("rgb(61, 138, 107)", "rgb(85, 178, 140)")
    assert int(measured["height"]) > 20
    assert measured["pairs"] == "0"
