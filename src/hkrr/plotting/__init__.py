"""Plots of fitted models, as Display objects in the style of scikit-learn.

- `SubspaceDisplay`: the loadings of the columns in each learned direction.
- `LinkDisplay`: the learned function over one or two directions.
- `ImportanceDisplay`: the importances of the columns.
- `PredictionErrorDisplay`: predictions against observed targets.
- `TrainingDisplay`: the objective over the iterations of the solver.
- `PathDisplay`: the candidates that a search compared.

For a `HyperKernelEnsemble` or a `HyperKernelClassifier`, a plot of a single map or of a single run of the solver shows
the first member, and a note above the plot says so.

The class method ``from_estimator`` computes the data of a plot from a fitted model and draws the plot. The method
``plot`` draws the same data again, into any axes. The colours (Okabe and Ito's palette, and viridis) are safe for
colour-blind readers. Text and thin lines have the text colour of the current Matplotlib style, so the plots are also
legible with ``plt.style.use("dark_background")``.

Matplotlib is required: ``pip install "hkrr[plot]"``.
"""

from hkrr.plotting.importances import ImportanceDisplay
from hkrr.plotting.link_function import LinkDisplay
from hkrr.plotting.prediction_error import PredictionErrorDisplay
from hkrr.plotting.search_path import PathDisplay
from hkrr.plotting.subspace import SubspaceDisplay
from hkrr.plotting.training_history import TrainingDisplay

__all__ = [
    "ImportanceDisplay",
    "LinkDisplay",
    "PathDisplay",
    "PredictionErrorDisplay",
    "SubspaceDisplay",
    "TrainingDisplay",
]
