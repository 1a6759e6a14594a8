"""HTML reports on fitted models: one self-contained file that opens in any browser.

`write_report` writes the file in two steps, which are also public functions. `gather` computes the contents of the
report as plain numbers and strings, and returns them as a `Facts` object. `render` converts a `Facts` object to HTML,
without further computations about the model.

These modules run one after another:

- `report_input` checks the model and the rows, and converts all supported kinds of models to one form.
- `directions`, `link_function`, `prediction_errors`, `baseline_comparison` and `training_history` compute the contents
  of the sections. `report_data` collects these contents in a `Facts` object.
- `sections` writes the header and the sections as HTML. It uses `text_formatting`, `html_elements`, `section_charts`,
  `svg_chart` and `contour_image`.
- `page` combines the sections, the style sheet and the scripts into one page.
"""

from hkrr.reporting.page import render, write_report
from hkrr.reporting.report_data import Facts, gather

__all__ = ["Facts", "gather", "render", "write_report"]
