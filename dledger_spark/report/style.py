"""The style of the elements that only reports have."""

from typing import Final

from dledger.pages.style import STYLE, colours

_COLOURS: Final = (
    *("good", "bad", "gap"),
    *(f"c{number}" for number in range(8)),
    *(f"h{number}" for number in range(1, 10)),
    *("p50", "p99"),
)
# People who see no red or green can tell the colours of parts apart.
_PARTS: Final = """
:root { --good: #2f7d5b; --bad: #c0392f; --gap: #c0392f; --p50: #2468b0; --p99: #b5541c;
  --link: var(--p50);
  --c0: #3a76b8; --c1: #e39a32; --c2: #3f9c85; --c3: #b75d9a; --c4: #7aa7d8; --c5: #c8632f;
  --c6: #8a8f3a; --c7: #9aa4b1;
  --h1: #fdeecb; --h2: #fbdc9f; --h3: #f8c171; --h4: #f3a04f; --h5: #ea7d3a; --h6: #d9562c;
  --h7: #b93627; --h8: #8f1f2c; --h9: #5c1238; }
@media (prefers-color-scheme: dark) {
  :root { --good: #57b58c; --bad: #ef7166; --gap: #ef7166; --p50: #6cabec; --p99: #f09a5b;
    --c0: #5b96d6; --c1: #e8ab4f; --c2: #55b59c; --c3: #cf7db3; --c4: #9cc3ec; --c5: #e08150;
    --c6: #a9ae55; --c7: #6d7785;
    --h1: #3d2c15; --h2: #5c3d18; --h3: #7f501b; --h4: #a4631f; --h5: #c67a28; --h6: #de9338;
    --h7: #efae57; --h8: #f8c880; --h9: #ffe6b8; } }
body { overflow-wrap: anywhere; }
.holds, .fails { border-left: 8px solid var(--good); background: var(--panel);
  padding: 10px 14px; border-radius: 4px; margin: 12px 0; }
.fails { border-color: var(--bad); }
.holds strong, .fails strong { font-size: 17px; }
.holds p, .fails p { margin: 4px 0; }
td:target, h3:target { background: var(--panel); outline: 2px solid var(--link); }
summary { cursor: pointer; color: var(--soft); }
nav { margin: 10px 0; } nav a { margin-right: 14px; white-space: nowrap; }
td.text { min-width: 150px; max-width: 420px; }
td.when { white-space: nowrap; font-variant-numeric: tabular-nums; }
th { white-space: nowrap; }
td.keyed { padding-left: 19px; position: relative; }
.keyed .key { position: absolute; left: 0; top: 8px; }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: 3px 10px;
  align-items: center; font-size: 14px; margin: 6px 0; max-width: 820px; }
.bars .track { background: var(--panel); height: 15px; border-radius: 2px; overflow: hidden;
  display: flex; min-width: 40px; }
.bars .track i { display: block; height: 100%; }
.bars .figure { text-align: right; font-variant-numeric: tabular-nums; }
.bars .name { max-width: 38vw; }
svg text { fill: var(--soft); } svg text.name { fill: var(--ink); }
.empty { fill: var(--panel); }
i.none { background: var(--panel); border: 1px solid var(--rule); }
rect.gap { opacity: 0.28; } i.gap { opacity: 0.4; }
"""
REPORT_STYLE: Final = STYLE + colours(_COLOURS) + _PARTS
