"""Sphinx settings. Nothing here reads the network: the documentation builds offline."""

import tomllib
from pathlib import Path

_pyproject = tomllib.loads(
    (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
)

project = "dledger"
author = "the dledger contributors"
release = _pyproject["project"]["version"]
version = release

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist"]
# Headings down to this level can be linked to as page.md#heading.
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"dledger {release}"
# No copy of the sources and no builder's mark in the pages.
html_copy_source = False
html_show_sphinx = False
