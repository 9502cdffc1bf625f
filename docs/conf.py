"""How the pages are built: make docs."""

import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

_project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

project = _project["name"].capitalize()
author = project_copyright = _project["authors"][0]["name"]
release = version = _project["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "pages"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
exclude_patterns = ["_build"]
smartquotes = False  # quotes are part of options here

html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["static"]
html_css_files = ["ordinate.css"]
