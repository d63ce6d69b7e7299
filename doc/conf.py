"""Sphinx configuration. Built with -W: a warning is an error."""

import os
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import matplotlib
from api_reference import write_api_pages
from example_data import examples_without_data, pattern_of_the_rest
from sklearn.exceptions import ConvergenceWarning
from sphinx_gallery.sorting import ExplicitOrder

import skroute

matplotlib.use("Agg")
# An example that warns is not an example. Only the warning that a busy machine measures other times
# says nothing to a reader of the site.
for category in [ConvergenceWarning, DeprecationWarning, FutureWarning]:
    warnings.filterwarnings(
        "error", category=category, module=r"sklearn|skroute|__main__"
    )
warnings.filterwarnings("ignore", message="The cost of .* times what was measured")
beside = Path(__file__).resolve().parents[2] / "shared" / "data"
if not os.environ.get("SKROUTE_DATA") and beside.is_dir():
    os.environ["SKROUTE_DATA"] = str(beside)

# The other examples need nothing that is not here.
without_data = examples_without_data(Path(__file__).resolve().parents[1] / "examples")
for name, reason in without_data.items():
    print(
        f"{name} is shown without its output: its data is absent and could not be downloaded "
        f"({reason}). Set SKROUTE_DATA to a folder that holds it."
    )

project = "skroute"
copyright = "2026, the skroute developers"
version = release = skroute.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.linkcode",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "sphinx_design",
    "sphinx_copybutton",
    "mathml",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "**/README.rst", "whats_new/_*.rst"]
suppress_warnings = ["config.cache"]

autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
autodoc_typehints = "none"
# The names of methods fit beside the page, "Class.method" does not.
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = "skroute"
html_theme_options = {
    "navbar_align": "left",
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
# Pages without siblings have no use for a navigation of their section.
html_sidebars = {
    page: []
    for page in [
        "index",
        "install",
        "getting_started",
        "measured",
        "peers",
        "glossary",
        "contributing",
    ]
}
html_static_path = ["_static"]
html_css_files = ["skroute.css"]
html_math_renderer = "mathml"
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": pattern_of_the_rest(without_data),
    "ignore_pattern": r"demo\.py",
    "abort_on_example_error": True,
    "doc_module": ("skroute",),
    "backreferences_dir": "generated/backreferences",
    "show_memory": False,
    # The page with computation times loads scripts from elsewhere and says little.
    "write_computation_times": False,
    "min_reported_time": 5,
    "within_subsection_order": "FileNameSortKey",
    "subsection_order": ExplicitOrder(
        ["../examples/quickstart", "../examples/applied", "../examples/reproduce"]
    ),
    "remove_config_comments": True,
}


def linkcode_resolve(domain, info):
    """No public repository yet: no source links."""
    return None


def skip_fields(app, what, name, obj, skip, options):
    """Leave out the fields of named tuples: the class describes them, they do not."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def setup(app):
    app.connect("autodoc-skip-member", skip_fields)
    here = Path(__file__).parent
    write_api_pages(here)
