"""A fitted model as a page that anybody can open: one HTML file, with nothing to load and nothing to install.

`write_report` writes it. `gather` finds what it says, as plain numbers and texts in a `Facts`: the page is a picture of
that and computes nothing. How the pieces combine: `subject` is the one place that knows what may be reported on;
`directions`, `link`, `errors`, `comparison` and `training` each find the facts of one section; `sections` puts them
into words and pictures (`words`, `pictures`, `charts`), and `page` joins these with the style and the script in this
folder.
"""

from hkrr.reporting.facts import Facts, gather
from hkrr.reporting.page import render, write_report

__all__ = ["Facts", "gather", "render", "write_report"]
