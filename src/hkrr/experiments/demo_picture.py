"""Demo: learn a synthetic multi-index model from 600 samples in 50 dimensions, and draw the fit.

Run ``python -m hkrr.experiments.demo_picture``. The fit is compared with two kernel ridge regressions. The first uses
all 50 inputs, although the target depends only on three directions. The second uses the true directions, which are not
known in practice.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV

from hkrr._base.threads import single_threaded_blas
from hkrr.datasets import Dataset, make_mim_sines
from hkrr.estimators.ridge import HyperKernelRidge
from hkrr.experiments.figures import COLOURS, GREY
from hkrr.metrics import subspace_distance
from hkrr.plotting import LinkDisplay, TrainingDisplay

# Numbers of training rows and test rows.
N_TRAIN, N_TEST = 600, 4800


@dataclass(frozen=True)
class Outcome:
    """The data, the fitted model and the test scores of the demo."""

    data: Dataset
    model: HyperKernelRidge
    # Test R2 of the model, of kernel ridge regression on all inputs, and of kernel ridge regression on the true
    # directions.
    score: float
    score_on_inputs: float
    score_on_true_map: float
    # Distance between the learned and the true subspace.
    distance: float
    # Time of the fit in seconds.
    seconds: float


def run(seed: int = 0, verbose: int = 1) -> Outcome:
    """Generate the data, fit the models and score them on the test rows."""
    data = make_mim_sines(N_TRAIN + N_TEST, random_state=seed)
    X, y = data.X[:N_TRAIN], data.y[:N_TRAIN]
    X_test, y_test = data.X[N_TRAIN:], data.y[N_TRAIN:]

    start = time.perf_counter()
    model = HyperKernelRidge(n_components=len(data.B), verbose=verbose, random_state=seed).fit(X, y)
    seconds = time.perf_counter() - start

    return Outcome(
        data,
        model,
        score=model.score(X_test, y_test),
        score_on_inputs=_tuned_krr(X, y).score(X_test, y_test),
        score_on_true_map=_tuned_krr(X @ data.B.T, y).score(X_test @ data.B.T, y_test),
        distance=subspace_distance(model.components_, data.B),
        seconds=seconds,
    )


def _tuned_krr(X: Any, y: Any) -> Any:
    grid = {
        "alpha": N_TRAIN * np.logspace(-5, -1, 5),
        "gamma": 0.5 / np.var(X) / X.shape[1] * np.logspace(-1, 1, 5),
    }
    with single_threaded_blas():
        return GridSearchCV(KernelRidge(kernel="rbf"), grid).fit(X, y)


def describe(outcome: Outcome) -> str:
    """Return a summary of the demo in a few lines of text."""
    spectrum = "  ".join(f"{value:.2f}" for value in outcome.model.singular_values_)
    d, D = outcome.data.B.shape
    rows = [
        ("kernel ridge on the 50 inputs (tuned)", outcome.score_on_inputs),
        ("hkrr, learning the map", outcome.score),
        ("kernel ridge on the true directions (tuned)", outcome.score_on_true_map),
        ("upper limit because of the noise", 1 / 1.01),
    ]
    return "\n".join(
        [
            f"A function of {d} unknown directions in {D} dimensions, {N_TRAIN} noisy samples, {N_TEST} test samples.",
            "",
            *(f"  test R2  {score:6.3f}   {name}" for name, score in rows),
            "",
            f"  singular values of the map        {spectrum}",
            f"  distance to the true subspace     {outcome.distance:.2f}  (0: identical, 1: a direction is missed)",
            f"  seconds to fit                    {outcome.seconds:.1f}",
        ]
    )


def plot(outcome: Outcome, path: Path) -> None:
    """Plot the training curve, the learned directions, and the link function along the first two directions."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9.5, 7.5), layout="constrained")
    TrainingDisplay.from_estimator(outcome.model, x="time", ax=axes[0, 0])
    _plot_directions(axes[0, 1], outcome)
    X, y = outcome.data.X[:N_TRAIN], outcome.data.y[:N_TRAIN]
    for k in range(2):
        LinkDisplay.from_estimator(outcome.model, X, y, directions=(k,), coverage=None, ax=axes[1, k])
    d, D = outcome.data.B.shape
    figure.suptitle(f"{d} unknown directions in {D} dimensions from {N_TRAIN} samples: test R2 {outcome.score:.3f}")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _plot_directions(ax: Any, outcome: Outcome) -> None:
    true, learned = outcome.data.B, outcome.model.components_
    # The basis of a subspace is arbitrary, so compare each true direction with its best match in the learned subspace.
    mixing = np.linalg.lstsq(learned.T, true.T, rcond=None)[0]
    ends = [min(0.0, float(true.min())), float(true.max())]
    ax.plot(ends, ends, color=GREY, lw=1)
    for j, (marker, colour) in enumerate(zip("osD", COLOURS.values(), strict=True)):
        matched = (learned.T @ mixing)[:, j]
        ax.plot(true[j], matched, marker, ms=3.5, color=colour, label=f"direction {j + 1}")
    ax.set(title="Directions: 50 loadings each", xlabel="true loading", ylabel="best match in the learned subspace")
    ax.legend(frameon=False)


def main() -> None:
    """Run the demo, print its summary and write its figure."""
    parser = argparse.ArgumentParser(prog="python -m hkrr.experiments.demo_picture", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="seed of the data and the fit (default: 0)")
    parser.add_argument("--out", type=Path, default=Path("demo.png"), help="file of the figure (default: demo.png)")
    options = parser.parse_args()
    outcome = run(options.seed)
    print(describe(outcome))
    plot(outcome, options.out)
    print(f"  figure                            {options.out}")


if __name__ == "__main__":
    main()
