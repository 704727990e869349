"""How the documentation is built: `make docs` runs Sphinx on this folder, with warnings as errors."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import excess

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from _ext.commands import write_keys, write_reference
from _ext.inventories import write_inventories

project = "excess"
author = "The excess developers"
copyright = f"The excess developers, {excess.__version__}"
version = release = excess.__version__
os.environ.setdefault("MPLBACKEND", "agg")

extensions = [
    "_ext.names",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",  # formulas without a network
]
exclude_patterns = ["_build", "_commands.md", "_keys.md", "_ext", "tutorials"]
nitpicky = True
words_in_backticks = ["hybrid"]  # names of models, which docstrings write like objects
default_role = "py:obj"

# Markdown
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "substitution"]
myst_heading_anchors = 4
suppress_warnings = ["myst.strikethrough"]

# The API, from docstrings
autosummary_generate = True
autodoc_typehints = "none"  # docstrings have the types
autodoc_member_order = "groupwise"
toc_object_entries_show_parents = "hide"  # names of methods alone fit into the sidebar
numpydoc_show_class_members = False
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"
numpydoc_class_members_toctree = False

# The command line, from the commands
write_reference(HERE / "_commands.md")
write_keys(HERE / "_keys.md")

# Links to other projects go by small inventories of the names that are used, so that the build needs no network.
intersphinx_mapping = write_inventories(HERE / "_ext" / "other_projects.txt", HERE / "_build" / "inventories")

# Tutorials are scripts that are run. Those whose data are missing are left out and listed on the page of tutorials.
DATA = Path(os.environ.get("EXCESS_DATA", HERE.parent.parent / "shared" / "data"))
os.environ["EXCESS_DATA"] = str(DATA)
TUTORIAL_DATA = {"upsilon": "cms", "crab": "fact/joint-crab", "lhc_olympics": "lhco", "pulsar": "pulsar"}
left_out = [name for name, folder in TUTORIAL_DATA.items() if not (DATA / folder).is_dir()]
_words = ", ".join(f"{name} (needs `{TUTORIAL_DATA[name]}`)" for name in left_out)
myst_substitutions = {
    "left_out": f"Not in this build, because their data were not found: {_words}." if left_out else ""
}
if left_out:
    logging.getLogger("sphinx").info("tutorials left out, because EXCESS_DATA has no data for them: %s", _words)
sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "_tutorials",
    "filename_pattern": r"/tutorial_",
    "ignore_pattern": "|".join([r"__init__\.py", *(rf"tutorial_\d_{name}\.py" for name in left_out)]),
    "show_memory": False,
    "download_all_examples": False,
    "abort_on_example_error": True,
    "min_reported_time": 1e9,
    "doc_module": ("excess",),
    "reference_url": {"excess": None},
}

html_theme = "pydata_sphinx_theme"
html_title = "excess"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["excess.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "show_prev_next": False,
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "search_bar_text": "Search",
}
html_sidebars = {"index": [], "validation": []}
