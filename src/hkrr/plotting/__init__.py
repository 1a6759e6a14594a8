"""Pictures of a fitted model, as scikit-learn's Display objects.

`SubspaceDisplay` shows what the directions are made of, `LinkDisplay` the function over them, `ImportanceDisplay` which
columns matter, `PredictionErrorDisplay` how predictions compare with what was seen, `TrainingDisplay` how the solver
went, and `PathDisplay` what a `HyperKernelRidgeCV` chose from. Each has a ``from_estimator`` that computes and draws,
and a ``plot`` that draws again, into any axes. Colours are told apart by everyone (Okabe and Ito's, viridis), and
neutral ones are the style's own: pictures suit ``plt.style.use("dark_background")`` too.

They need matplotlib: ``pip install "hkrr[plot]"``.
"""

from hkrr.plotting.importances import ImportanceDisplay
from hkrr.plotting.link import LinkDisplay
from hkrr.plotting.path import PathDisplay
from hkrr.plotting.prediction_error import PredictionErrorDisplay
from hkrr.plotting.subspace import SubspaceDisplay
from hkrr.plotting.training import TrainingDisplay

__all__ = [
    "ImportanceDisplay",
    "LinkDisplay",
    "PathDisplay",
    "PredictionErrorDisplay",
    "SubspaceDisplay",
    "TrainingDisplay",
]
