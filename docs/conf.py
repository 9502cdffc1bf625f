"""How the pages are built: make docs."""

import tomllib
from pathlib import Path

_project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

project = _project["name"].capitalize()
author = _project["authors"][0]["name"]
release = version = _project["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"{project} {release}"
