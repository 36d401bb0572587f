"""The style of all pages: light and dark, narrow and wide, on paper."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# A page adds the colours and the shapes of its own parts; it names the colour --link.
STYLE: Final = """
:root { color-scheme: light dark;
  --paper: #ffffff; --ink: #1c2430; --soft: #5b6675; --rule: #d9dee5; --panel: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14181e; --ink: #e4e8ee; --soft: #98a3b3; --rule: #303843; --panel: #1b2129; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1200px; padding: 20px; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 20px; margin: 0 0 6px; } h2 { font-size: 17px; margin: 34px 0 8px; }
h3 { font-size: 14px; margin: 18px 0 2px; font-weight: 600; }
p { margin: 6px 0; } .soft { color: var(--soft); } a { color: var(--link); }
ul { padding-left: 20px; margin: 6px 0; }
.picture, .table { overflow-x: auto; margin: 8px 0; }
.picture svg { display: block; width: 100%; height: auto; }
.narrow { display: none; max-width: 520px; }
@media (max-width: 900px) { body { padding: 12px; } .wide { display: none; }
  .narrow { display: block; } }
@media print { body { max-width: none; } }
.legend { margin: 6px 0; font-size: 13px; color: var(--soft); }
.legend .word { margin-right: 14px; white-space: nowrap; }
.key { display: inline-block; width: 12px; height: 12px; border-radius: 2px; margin-right: 5px;
  vertical-align: -1px; }
table { border-collapse: collapse; font-size: 14px; }
th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
svg text { font: 12px system-ui, sans-serif; }
.grid { stroke: var(--rule); stroke-width: 1; }
"""


def colours(names: Iterable[str]) -> str:
    """Return the style of shapes and keys whose classes are named like their colours.

    The rule for `.line` comes last, so that a line has its colour only as its stroke.
    """
    rules = [
        f".{name} {{ fill: var(--{name}); }} i.{name} {{ background: var(--{name}); }} "
        f"path.line.{name} {{ stroke: var(--{name}); }}"
        for name in names
    ]
    return "\n".join([*rules, ".line { fill: none; stroke-width: 1.7; stroke-linejoin: round; }\n"])
