"""How a report looks: light and dark, narrow and wide, on paper."""

from __future__ import annotations

from typing import Final

# Colours of parts are told apart by people who see no red or green, too.
STYLE: Final = """
:root { color-scheme: light dark;
  --paper: #ffffff; --ink: #1a222d; --soft: #566273; --rule: #d8dee6; --panel: #f3f5f8;
  --good: #2f7d5b; --bad: #c0392f; --p50: #2468b0; --p99: #b5541c;
  --c0: #3a76b8; --c1: #e39a32; --c2: #3f9c85; --c3: #b75d9a; --c4: #7aa7d8; --c5: #c8632f;
  --c6: #8a8f3a; --c7: #9aa4b1;
  --h1: #fdeecb; --h2: #fbdc9f; --h3: #f8c171; --h4: #f3a04f; --h5: #ea7d3a; --h6: #d9562c;
  --h7: #b93627; --h8: #8f1f2c; --h9: #5c1238;
}
@media (prefers-color-scheme: dark) {
  :root { --paper: #13171d; --ink: #e3e8ee; --soft: #9aa6b5; --rule: #2e3641; --panel: #1b2129;
    --good: #57b58c; --bad: #ef7166; --p50: #6cabec; --p99: #f09a5b;
    --c0: #5b96d6; --c1: #e8ab4f; --c2: #55b59c; --c3: #cf7db3; --c4: #9cc3ec; --c5: #e08150;
    --c6: #a9ae55; --c7: #6d7785;
    --h1: #3d2c15; --h2: #5c3d18; --h3: #7f501b; --h4: #a4631f; --h5: #c67a28; --h6: #de9338;
    --h7: #efae57; --h8: #f8c880; --h9: #ffe6b8; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1160px; padding: 20px; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 21px; margin: 0 0 8px; } h2 { font-size: 17px; margin: 36px 0 6px; }
h3 { font-size: 14px; margin: 18px 0 2px; font-weight: 600; }
p { margin: 4px 0; } .soft { color: var(--soft); }
.holds, .fails { border-left: 8px solid var(--good); background: var(--panel);
  padding: 10px 14px; border-radius: 4px; margin: 12px 0; }
.fails { border-color: var(--bad); }
.holds strong, .fails strong { font-size: 17px; }
ul { margin: 4px 0; padding-left: 20px; } summary { cursor: pointer; color: var(--soft); }
nav { margin: 10px 0; } nav a { color: var(--p50); margin-right: 14px; white-space: nowrap; }
.table { overflow-x: auto; margin: 8px 0; }
table { border-collapse: collapse; font-size: 14px; }
th, td { text-align: left; padding: 3px 14px 3px 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
td.text { min-width: 150px; max-width: 420px; }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.when { white-space: nowrap; font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
.key { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 6px; }
td.keyed { padding-left: 19px; position: relative; }
.keyed .key { position: absolute; left: 0; top: 8px; }
.legend { margin: 4px 0; font-size: 13px; color: var(--soft); }
.legend span.word { margin-right: 14px; white-space: nowrap; }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: 3px 10px;
  align-items: center; font-size: 14px; margin: 6px 0; max-width: 820px; }
.bars .track { background: var(--panel); height: 15px; border-radius: 2px; overflow: hidden;
  display: flex; min-width: 40px; }
.bars .track i { display: block; height: 100%; }
.bars .figure { text-align: right; font-variant-numeric: tabular-nums; }
.bars .name { max-width: 38vw; }
.picture { margin: 6px 0; } .picture svg { display: block; width: 100%; height: auto; }
.narrow { display: none; max-width: 520px; }
@media (max-width: 760px) { body { padding: 12px; } .wide { display: none; }
  .narrow { display: block; } }
@media print { body { max-width: none; } }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
svg text.name { fill: var(--ink); }
.grid { stroke: var(--rule); stroke-width: 1; } .empty { fill: var(--panel); }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
path.p50 { stroke: var(--p50); } path.p99 { stroke: var(--p99); }
i.p50 { background: var(--p50); } i.p99 { background: var(--p99); }
i.none { background: var(--panel); border: 1px solid var(--rule); }
i.bad { background: var(--bad); } i.good { background: var(--good); }
rect.gap { fill: var(--bad); opacity: 0.28; } i.gap { background: var(--bad); opacity: 0.4; }
.c0 { fill: var(--c0); } i.c0 { background: var(--c0); }
.c1 { fill: var(--c1); } i.c1 { background: var(--c1); }
.c2 { fill: var(--c2); } i.c2 { background: var(--c2); }
.c3 { fill: var(--c3); } i.c3 { background: var(--c3); }
.c4 { fill: var(--c4); } i.c4 { background: var(--c4); }
.c5 { fill: var(--c5); } i.c5 { background: var(--c5); }
.c6 { fill: var(--c6); } i.c6 { background: var(--c6); }
.c7 { fill: var(--c7); } i.c7 { background: var(--c7); }
.h1 { fill: var(--h1); } i.h1 { background: var(--h1); }
.h2 { fill: var(--h2); } i.h2 { background: var(--h2); }
.h3 { fill: var(--h3); } i.h3 { background: var(--h3); }
.h4 { fill: var(--h4); } i.h4 { background: var(--h4); }
.h5 { fill: var(--h5); } i.h5 { background: var(--h5); }
.h6 { fill: var(--h6); } i.h6 { background: var(--h6); }
.h7 { fill: var(--h7); } i.h7 { background: var(--h7); }
.h8 { fill: var(--h8); } i.h8 { background: var(--h8); }
.h9 { fill: var(--h9); } i.h9 { background: var(--h9); }
"""
