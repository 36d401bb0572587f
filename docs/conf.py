"""Sphinx settings. Nothing here reads the network: the documentation builds offline."""

import sys
import tomllib
from pathlib import Path

_root = Path(__file__).parent.parent
# The reference imports the library of this checkout, and docs/_ext draws what its core does.
sys.path.insert(0, str(_root))

_pyproject = tomllib.loads((_root / "pyproject.toml").read_text(encoding="utf-8"))

project = "dledger"
author = "the dledger contributors"
release = _pyproject["project"]["version"]
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "docs._ext.generated"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_ext", "examples", "pictures"]
nitpicky = True
# Signatures name types of inner modules and of other projects, which have no page here. Links
# between pages are not of this domain: a wrong one is still an error.
nitpick_ignore_regex = [(r"py:.*", r".*")]

# Two packages may have a class of the same name (`Credentials`): signatures name it without its
# package, and link to one of them.
suppress_warnings = ["ref.python"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False

myst_enable_extensions = ["colon_fence", "deflist"]
# Headings down to this level can be linked to as page.md#heading.
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"dledger {release}"
# No copy of the sources and no builder's mark in the pages.
html_copy_source = False
html_show_sphinx = False
