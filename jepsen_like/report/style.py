"""The style of the parts of a run's report that other pages do not have."""

from dledger.pages.style import STYLE, colours
from jepsen_like.report.lettering import letters_style

_COLOURS = ("ok", "fail", "info", "p50", "p99", *(f"fault{number}" for number in range(8)))
_PARTS = """
:root { --link: var(--p50);
  --ok: #3d8a6b; --fail: #d99a2b; --info: #c2453d; --p50: #2d6cb5; --p99: #8c4fa8;
  --fault0: #e8743b; --fault1: #4d7fd1; --fault2: #9b6fc9; --fault3: #3c9d9b;
  --fault4: #c9559a; --fault5: #8d8a3f; --fault6: #6b7a90; --fault7: #a5673f; }
@media (prefers-color-scheme: dark) { :root {
  --ok: #55b28c; --fail: #e0ab4a; --info: #ea6a61; --p50: #69a5e8; --p99: #c08ad8; } }
.verdict { border-left: 10px solid var(--soft); background: var(--panel); padding: 14px 18px;
  border-radius: 4px; margin: 14px 0; overflow-wrap: anywhere; }
.verdict strong { font-size: 22px; display: block; }
.nothing-found { border-color: var(--ok); } .violation { border-color: var(--info); }
.undecided, .harness-failed { border-color: var(--fail); }
pre { font: 13px/1.45 ui-monospace, monospace; background: var(--panel); padding: 10px 12px;
  border-radius: 4px; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
.whole { display: inline-block; overflow-wrap: anywhere; }
td.word { white-space: nowrap; }
svg text { fill: var(--ink); } svg .tick, svg .name { fill: var(--soft); }
svg text.call, svg text.client { font-family: ui-monospace, monospace; }
svg .call.inside { fill: var(--paper); }
rect.named { stroke: var(--ink); stroke-width: 2; }
.band { opacity: 0.13; } .lane { opacity: 0.85; }
"""
RUN_STYLE = STYLE + colours(_COLOURS) + _PARTS + letters_style()

# The style of a space-time diagram besides that.
_DIAGRAM = """
:root { --follower: #9fb0c3; --candidate: #e0a63c; --leader: #3d8a6b; --votes: #b5791a;
  --entries: #2d6cb5; }
@media (prefers-color-scheme: dark) { :root { --follower: #56677b; --candidate: #c99238;
  --leader: #55b28c; --votes: #e0ab4a; --entries: #69a5e8; } }
i.frozen { background: repeating-linear-gradient(0deg, var(--ink) 0 1px,
  var(--follower) 1px 4px); }
i.down { border-left: 2px dashed var(--soft); border-radius: 0; width: 4px; }
i.lost { border-top: 2px dashed var(--info); height: 4px; border-radius: 0; vertical-align: 3px;
  width: 20px; }
.member-band.odd { opacity: 0.75; }
.member-band.frozen { fill-opacity: 0.35; stroke: var(--ink); stroke-dasharray: 2 3; }
.life { stroke: var(--soft); stroke-dasharray: 3 5; stroke-width: 1.5; }
.cross { stroke: var(--info); stroke-width: 3; } .cross.small { stroke-width: 1.8; }
.message { stroke-width: 1.2; stroke: var(--soft); }
.message.entries { stroke: var(--entries); } .head.entries { fill: var(--entries); }
.message.votes { stroke: var(--votes); } .head.votes { fill: var(--votes); }
.message.idle, .head.idle { opacity: 0.35; }
.message.lost { stroke: var(--info); stroke-dasharray: 4 3; }
.head { fill: var(--soft); }
.asked { stroke: var(--soft); stroke-width: 0.8; stroke-dasharray: 1 3; }
.mark { fill: var(--ink); }
rect.call.open { fill: var(--soft); }
.note { stroke-width: 1; stroke: var(--fail); stroke-dasharray: 7 4; }
.note.broken { stroke: var(--info); stroke-width: 2; stroke-dasharray: none; }
svg text { paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }
svg .said { fill: var(--soft); } svg .role { fill: var(--ink); }
svg .role.down { fill: var(--info); }
svg .answer { fill: var(--soft); } svg .answer.info { fill: var(--info); }
svg .note-text { fill: var(--fail); } svg .note-text.broken { fill: var(--info); }
@media print { .picture svg { min-width: 0 !important; } }
"""
SPACE_TIME_STYLE = RUN_STYLE + colours(("follower", "candidate", "leader")) + _DIAGRAM
