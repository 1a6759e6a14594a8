"""Configuration of Sphinx. ``make docs`` builds the documentation in docs/_build/html, without network access."""

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
suppress_warnings = ["config.cache"]  # the gallery's configuration contains functions, which cannot be pickled

# Pages are Markdown that can also be read on GitHub. Formulas are plain text, so that the site does not need MathJax.
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]

# A name in single backticks becomes a link if the object is documented.
default_role = "py:obj"
autosummary_generate = True
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # numpydoc's parameter sections list the types
autodoc_default_options = {
    # Methods that scikit-learn adds to every estimator.
    "exclude-members": "set_fit_request, set_score_request, set_predict_request, set_output",
}
numpydoc_show_class_members = False  # the template in _templates lists the members
numpydoc_class_members_toctree = False
# Checks of the docstrings: no tabs (GL05), only known sections (GL06) in the right order (GL07), a summary (SS01), and
# no parameters that the signature does not have (PR02).
numpydoc_validation_checks = {"GL05", "GL06", "GL07", "SS01", "PR02"}

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# The order of the examples in the gallery. Examples that are not listed come last.
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

# Links to other hosts are not checked, so that `make docs` works without a network.
linkcheck_ignore = [r"https?://"]


def _copy_benchmarks(app):
    """Copy the pages and pictures of the benchmarks to docs/benchmarks."""
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
        # copy2 keeps the modification time, so that Sphinx does not read unchanged pages again.
        shutil.copy2(page, copy)


# Files in the root of the repository that are pages of the site, and the names of these pages in docs/.
PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}


def _rewrite_links(app, docname, source):
    """Rewrite links to files of the repository outside docs/ as links within the site."""
    up, text = "../" * docname.count("/"), source[0]
    if docname.startswith("benchmarks/"):
        source[0] = text.replace(f"]({up}docs/", f"]({up}")
        return
    text = text.replace(f"]({up}../benchmarks/", f"]({up}benchmarks/")
    for file, page in PAGES.items():
        text = text.replace(f"]({up}../{file}", f"]({up}{page}")
    text = text.replace(f"]({up}../examples)", f"]({up}gallery/index.rst)")
    source[0] = re.sub(rf"\]\({re.escape(up)}\.\./examples/(\w+)\.py", rf"]({up}gallery/\1.rst", text)


def setup(app):
    app.connect("builder-inited", _copy_benchmarks, priority=1)
    app.connect("source-read", _rewrite_links)
