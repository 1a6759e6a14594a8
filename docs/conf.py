"""The documentation: ``make docs`` builds it into docs/_build/html. Nothing of it needs a network."""

import re
import shutil
from pathlib import Path

import hkrr

DOCS = Path(__file__).parent
ROOT = DOCS.parent

project, author, copyright = "hkrr", "The hkrr developers", "The hkrr developers"
version = release = hkrr.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_templates", "reproduced", "gallery/**/*.ipynb", "gallery/*.py", "gallery/*.md5"]
templates_path = ["_templates"]
suppress_warnings = ["config.cache"]  # the gallery's settings hold functions, which the cache has no place for

# Pages are Markdown that a code host shows as well. Formulas are plain text: nothing to fetch, nothing to break.
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]

# A name in single backticks is a link where there is something to link to.
default_role = "py:obj"
autosummary_generate = True
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # numpydoc's sections have them
autodoc_default_options = {
    # What scikit-learn's metaclass adds, for the routing of metadata.
    "exclude-members": "set_fit_request, set_score_request, set_predict_request, set_output",
}
numpydoc_show_class_members = False  # the template lists them with their text
numpydoc_class_members_toctree = False
numpydoc_validation_checks = {"GL05", "GL06", "GL07", "SS01", "PR02"}  # sections, a summary, no parameter that is none

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# The order in which the gallery teaches; what is not named here comes last.
ORDER = [
    "first_model",
    "why_kernel_ridge_fails",
    "how_many_directions",
    "smoothness",
    "table",
    "displays",
    "importances",
    "intervals",
    "classification",
    "bad_fit",
    "seeds",
    "few_centers",
    "pipeline",
    "algorithms",
    "file_in_pieces",
    "checkpoint",
    "saving",
    "own_kernel",
]


def _order(filename):
    name = Path(filename).stem.removeprefix("plot_")
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)


sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": _order,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "doc_module": ("hkrr",),
    "backreferences_dir": "gallery/backreferences",
    "matplotlib_animations": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "hkrr"
html_static_path = ["_static"]
html_css_files = ["hkrr.css"]
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "navbar_end": ["theme-switcher"],
    "show_prev_next": True,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "quickstart": [], "transcript": [], "changelog": []}

# Links to other hosts are listed, not fetched: `make docs` must work where there is no network.
linkcheck_ignore = [r"https?://"]


def _copy_benchmarks(app):
    """Bring the benchmarks' pages and pictures into the tree of the documentation, in the same places."""
    source, target = ROOT / "benchmarks", DOCS / "benchmarks"
    shutil.rmtree(target, ignore_errors=True)
    for page in (
        *source.glob("*.md"),
        *source.glob("*.png"),
        *source.glob("results/*.md"),
        *source.glob("results/*.png"),
    ):
        copy = target / page.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(page, copy)  # with its time: unchanged pages are not read again


def _as_links_of_the_site(app, docname, source):
    """Rewrite links that are right in the repository, and lead out of docs/ in the site."""
    up, text = "../" * docname.count("/"), source[0]
    if docname.startswith("benchmarks/"):
        source[0] = text.replace(f"]({up}docs/", f"]({up}")
        return
    text = text.replace(f"]({up}../benchmarks/", f"]({up}benchmarks/").replace(
        f"]({up}../CHANGELOG.md", f"]({up}changelog.md"
    )
    text = text.replace(f"]({up}../examples)", f"]({up}gallery/index.rst)")
    source[0] = re.sub(rf"\]\({re.escape(up)}\.\./examples/(\w+)\.py", rf"]({up}gallery/\1.rst", text)


def setup(app):
    app.connect("builder-inited", _copy_benchmarks, priority=1)
    app.connect("source-read", _as_links_of_the_site)
