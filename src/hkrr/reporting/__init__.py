"""HTML reports on fitted models: one self-contained file that opens in any browser.

`write_report` writes the file. It calls two functions, which are also public. `gather` computes the contents of the
report as plain numbers and strings, and returns them as a `Facts`. `render` converts a `Facts` to HTML, and computes
nothing about the model.

The modules, in the order in which data flows through them:

- `report_input` checks the model and the rows, and converts all supported kinds of models to one form.
- `directions`, `link_function`, `prediction_errors`, `baseline_comparison` and `training_history` compute the contents
  of the sections. `report_data` collects these contents in a `Facts`.
- `page_header`, `directions_and_link_sections` and `sections` write the header and the sections as HTML, with the help
  of `text_formatting`, `html_elements`, `section_charts`, `svg_chart` and `contour_image`.
- `page` joins the sections with the style sheet and the scripts of this folder.
"""

from hkrr.reporting.page import render, write_report
from hkrr.reporting.report_data import Facts, gather

__all__ = ["Facts", "gather", "render", "write_report"]
