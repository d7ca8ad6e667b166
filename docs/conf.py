"""Configuration of Sphinx. `make docs` builds the site into build/docs."""

import importlib.metadata
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

import generate  # noqa: E402

generate.write_all(DOCS / "generated")

project = "Intel Extension for PyTorch"
author = "The contributors"
release = importlib.metadata.version("intel_extension_for_pytorch")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["generated", "requirements.txt"]
html_theme = "furo"
html_title = project
html_static_path = ["static"]
html_css_files = ["site.css"]

myst_heading_anchors = 3
default_role = "code"  # docstrings mark code with single backquotes
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
# References to other projects, which have sites of their own, and to types that are no part of the interface.
nitpick_ignore_regex = [(r"py:.*", r"(torch|collections|pathlib|typing|step_profile)\b.*|Path|Sequence|Any|Callable")]
