"""How the documentation is built: `make docs` runs Sphinx on this folder, with warnings as errors."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

from sphinx_gallery.sorting import ExplicitOrder

import excess

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from _ext.inventories import write_inventories  # noqa: E402

project = "excess"
author = "The excess developers"
copyright = f"The excess developers, {excess.__version__}"
version = release = excess.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_ext", "tutorials/README.md", "tutorials/**/*.ipynb", "**/.ipynb_checkpoints"]
nitpicky = True
default_role = "py:obj"

# Markdown
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["myst.strikethrough"]

# The API, from docstrings
autosummary_generate = True
autodoc_typehints = "none"  # docstrings have the types
autodoc_member_order = "groupwise"
numpydoc_show_class_members = False
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"
numpydoc_class_members_toctree = False

# Links to other projects go by small inventories of the names that are used, so that the build needs no network.
intersphinx_mapping = write_inventories(HERE / "_ext" / "other_projects.txt", HERE / "_build" / "inventories")

# Tutorials are scripts that are run. Those whose data is not there are left out, and say so.
_DATA = Path(os.environ.get("EXCESS_DATA", HERE.parent.parent / "shared" / "data"))
os.environ["EXCESS_DATA"] = str(_DATA)
sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "_tutorials",
    "filename_pattern": r"/tutorial_",
    "ignore_pattern": r"__init__\.py",
    "within_subsection_order": "FileNameSortKey",
    "show_memory": False,
    "remove_config_comments": True,
    "download_all_examples": False,
    "abort_on_example_error": True,
    "min_reported_time": 1e9,
    "plot_gallery": "True",
    "doc_module": ("excess",),
    "reference_url": {"excess": None},
    "image_scrapers": ("matplotlib",),
    "subsection_order": ExplicitOrder(["tutorials"]),
}
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")

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
html_sidebars = {"index": [], "changelog": []}
