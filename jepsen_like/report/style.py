"""How a report looks: in light and dark, narrow and wide, on paper."""

from jepsen_like.report.lettering import letters_style

_LOOK = """
:root {
  --paper: #ffffff; --ink: #1c2430; --soft: #5b6675; --rule: #d9dee5; --panel: #f6f8fa;
  --ok: #3d8a6b; --fail: #d99a2b; --info: #c2453d; --p50: #2d6cb5; --p99: #8c4fa8;
  --fault0: #e8743b; --fault1: #4d7fd1; --fault2: #9b6fc9; --fault3: #3c9d9b;
  --fault4: #c9559a; --fault5: #8d8a3f; --fault6: #6b7a90; --fault7: #a5673f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181e; --ink: #e4e8ee; --soft: #98a3b3; --rule: #303843; --panel: #1b2129;
    --ok: #55b28c; --fail: #e0ab4a; --info: #ea6a61; --p50: #69a5e8; --p99: #c08ad8;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1200px; padding: 20px; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 20px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 34px 0 8px; }
p { margin: 6px 0; } .soft, figcaption { color: var(--soft); }
a { color: var(--p50); }
.verdict { border-left: 10px solid var(--soft); background: var(--panel); padding: 14px 18px;
  border-radius: 4px; margin: 14px 0; overflow-wrap: anywhere; }
.verdict strong { font-size: 22px; display: block; }
.nothing-found { border-color: var(--ok); } .violation { border-color: var(--info); }
.undecided, .harness-failed { border-color: var(--fail); }
pre, code { font: 13px/1.45 ui-monospace, monospace; }
pre { background: var(--panel); padding: 10px 12px; border-radius: 4px; overflow-x: auto;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.whole { display: inline-block; overflow-wrap: anywhere; }
.picture, .table { overflow-x: auto; margin: 8px 0; }
.picture svg { display: block; width: 100%; height: auto; }
.narrow { display: none; max-width: 520px; }
@media (max-width: 900px) { body { padding: 12px; } .wide { display: none; }
  .narrow { display: block; } }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 13px; }
.key::before { content: ""; display: inline-block; width: 12px; height: 12px; margin-right: 5px;
  border-radius: 2px; vertical-align: -1px; }
.key.p50::before { background: var(--p50); } .key.p99::before { background: var(--p99); }
.key.ok::before { background: var(--ok); } .key.fail::before { background: var(--fail); }
.key.info::before { background: var(--info); }
table { border-collapse: collapse; font-size: 14px; }
th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.word { white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
ul { padding-left: 20px; margin: 6px 0; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .tick, svg .name { fill: var(--soft); }
svg text.call, svg text.client { font-family: ui-monospace, monospace; }
svg .call.inside { fill: var(--paper); }
.grid { stroke: var(--rule); stroke-width: 1; }
.line { fill: none; stroke-width: 1.6; }
path.p50 { stroke: var(--p50); } path.p99 { stroke: var(--p99); }
rect.p50 { fill: var(--p50); } rect.p99 { fill: var(--p99); }
rect.ok { fill: var(--ok); } rect.fail { fill: var(--fail); } rect.info { fill: var(--info); }
rect.named { stroke: var(--ink); stroke-width: 2; }
.band { opacity: 0.13; } .lane { opacity: 0.85; }
.fault0 { fill: var(--fault0); } .fault1 { fill: var(--fault1); }
.fault2 { fill: var(--fault2); } .fault3 { fill: var(--fault3); }
.fault4 { fill: var(--fault4); } .fault5 { fill: var(--fault5); }
.fault6 { fill: var(--fault6); } .fault7 { fill: var(--fault7); }
@media print { body { max-width: none; } }
"""
STYLE = _LOOK + letters_style()
