"""GPyTorch Gaussian processes, with one length scale per input or with a learned linear map.

Adam maximizes the evidence (the marginal likelihood) on at most 1,000 training rows. The predictions are those of the
exact Gaussian process with at most 5,000 training rows. If a linear map is learned, maps with 1, 3 and 6 rows are
tried. Each of these numbers of rows gets a third of the learning time, and the map with the highest evidence is used.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from hkrr.bench.method_interface import Answer, BenchmarkTask, Method

# Maximum number of training rows on which the parameters are learned, maximum number of training rows on which the
# predictions are conditioned, and number of test rows that are predicted at once.
_LEARNING_ROWS, _EXACT_ROWS, _BLOCK = 1000, 5000, 2000
# Learning rate and maximum number of iterations of Adam.
_LEARNING_RATE, _MOST_STEPS = 0.05, 1000
# Learning stops if the evidence per row increases by at most _GAIN in _PATIENCE iterations.
_PATIENCE, _GAIN = 50, 1e-4
# Fraction of the time limit for learning. The rest is for the predictions.
_SHARE = 0.7
# Numbers of rows of the linear map that are tried.
_DIRECTIONS = (1, 3, 6)


def _process(X: Any, y: Any, likelihood: Any, n_directions: int | None) -> Any:
    """Return a Gaussian process with its initial parameters.

    The process has a linear map with `n_directions` rows. If `n_directions` is None, it has no map and one length scale
    per input.
    """
    import gpytorch
    import torch

    class Process(gpytorch.models.ExactGP):  # type: ignore[misc]  # gpytorch has no types
        def __init__(self) -> None:
            super().__init__(X, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.B = None
            if n_directions is None:
                base = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=X.shape[1])
            else:
                base = gpytorch.kernels.RBFKernel()
                B = torch.randn(n_directions, X.shape[1], dtype=X.dtype) / X.shape[1] ** 0.5
                self.B = torch.nn.Parameter(B)
            # Start with length scales near the typical distance between two rows. With length scales of 1 in 50
            # dimensions, the kernel matrix would be almost the identity.
            base.lengthscale = (X.shape[1] if n_directions is None else n_directions) ** 0.5
            self.kernel = gpytorch.kernels.ScaleKernel(base)

        def mapped(self, inputs: Any) -> Any:
            return inputs if self.B is None else inputs @ self.B.T

        def forward(self, inputs: Any) -> Any:
            P = self.mapped(inputs)
            return gpytorch.distributions.MultivariateNormal(self.mean(P), self.kernel(P))

    return Process()


class _Learned(NamedTuple):
    """A learned Gaussian process, with its evidence per row, the number of iterations and the learning time."""

    evidence: float
    model: Any
    n_steps: int
    seconds: float


def _learn(X: Any, y: Any, n_directions: int | None, seconds: float) -> _Learned:
    """Maximize the evidence until it hardly increases or the time is up. Return the model with the highest evidence."""
    import gpytorch
    import torch

    began = time.perf_counter()
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = _process(X, y, likelihood, n_directions).to(X)
    model.train()
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    adam = torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE)
    n_steps, best, kept, gained_at, at_gain = 0, -np.inf, model.state_dict(), 0, -np.inf
    while n_steps == 0 or (time.perf_counter() - began < seconds and n_steps < _MOST_STEPS):
        adam.zero_grad()
        value = evidence(model(X), y)
        (-value).backward()
        if value.item() > best:
            best, kept = value.item(), {name: entry.clone() for name, entry in model.state_dict().items()}
        if best > at_gain + _GAIN:
            at_gain, gained_at = best, n_steps
        elif n_steps - gained_at >= _PATIENCE:
            break
        adam.step()
        n_steps += 1
    model.load_state_dict(kept)
    return _Learned(best, model, n_steps, time.perf_counter() - began)


def _run(task: BenchmarkTask, choices: tuple[int | None, ...]) -> Answer:
    import gpytorch
    import torch

    torch.set_num_threads(task.threads)
    torch.manual_seed(task.seed)
    spread = task.X.std(axis=0)
    mean, scale = task.X.mean(axis=0), np.where(spread > 0, spread, 1.0)
    y_mean, y_scale = float(task.y.mean()), float(task.y.std()) or 1.0
    X, y = torch.tensor((task.X - mean) / scale), torch.tensor((task.y - y_mean) / y_scale)
    order = np.random.RandomState(task.seed).permutation(len(y))
    some, more = order[:_LEARNING_ROWS], order[:_EXACT_ROWS]
    # By default, GPyTorch uses conjugate gradients for more than 800 rows. Use a Cholesky decomposition instead.
    with gpytorch.settings.max_cholesky_size(_EXACT_ROWS):
        found = [_learn(X[some], y[some], d, _SHARE * task.seconds / len(choices)) for d in choices]
        best = max(found, key=lambda each: each.evidence)
        best.model.set_train_data(X[more], y[more], strict=False)
        best.model.eval()
        with torch.no_grad():
            X_test = torch.tensor((task.X_test - mean) / scale)
            predicted = torch.cat([best.model(block).mean for block in torch.split(X_test, _BLOCK)]).numpy()
    B = best.model.B
    components = None if B is None else B.detach().numpy() / scale
    steps = ", ".join(str(each.n_steps) for each in found)
    note = f"steps: {steps}; evidence {best.evidence:.3f}"
    return Answer(predicted * y_scale + y_mean, components, best.seconds, note)


def _map(task: BenchmarkTask) -> Answer:
    return _run(task, tuple(dict.fromkeys(min(d, task.X.shape[1]) for d in _DIRECTIONS)))


METHODS = {
    "gpytorch_ard": Method(
        lambda task: _run(task, (None,)),
        "GPyTorch's Gaussian process, Matern 3/2 kernel with one length scale per input, "
        "fitted by maximizing the evidence",
        ("torch", "gpytorch"),
    ),
    "gpytorch_map": Method(
        _map,
        "GPyTorch's Gaussian process, Gaussian kernel on a linear map of 1, 3 or 6 rows, "
        "fitted by maximizing the evidence",
        ("torch", "gpytorch"),
    ),
}
