"""HTML reports on fitted models: one self-contained file that opens in any browser.

`write_report` writes the file in two steps, which are also public functions. `gather` computes the contents of the
report as plain numbers and strings, and returns them as a `Facts` object: `RegressionFacts` or `ClassFacts`. `render`
converts a `Facts` object to HTML, without further computations about the model.

These modules run one after another:

- `report_input` checks the model and the rows, and converts all supported kinds of models to one form. `class_input`
  does this for classifiers.
- `directions` and `training_history` compute the contents of the sections that all reports have. `link_function`,
  `prediction_errors` and `baseline_comparison` compute those of a regressor, and `class_regions` and `class_errors`
  those of a classifier. `report_data` collects these contents in a `Facts` object.
- `shared_sections`, `sections` and `class_sections` write the header and the sections as HTML: those of all reports, of
  a regressor, and of a classifier. They use `text_formatting`, `html_elements`, `section_charts`, `class_charts`,
  `svg_chart` and `contour_image`.
- `page` combines the sections, the style sheet and the scripts into one page.
"""

from hkrr.reporting.page import render, write_report
from hkrr.reporting.report_data import ClassFacts, Facts, RegressionFacts, gather

__all__ = ["ClassFacts", "Facts", "RegressionFacts", "gather", "render", "write_report"]
