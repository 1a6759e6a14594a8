"""Gaussian processes of GPyTorch: a length for each input, or a learned linear map, by the evidence and Adam.

Exact up to 2,000 rows, with 500 inducing points (the variational bound of Titsias) beyond. The rows of the map are
chosen from 1, 3 and 6, by the evidence, with a third of the seconds each.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from hkrr.bench.methods import Answer, Method, Task

_EXACT_ROWS, _INDUCING, _BLOCK = 2000, 500, 2000
_LEARNING_RATE, _MOST_STEPS = 0.05, 1000
# Of the seconds, for learning: the rest is for the predictions.
_SHARE = 0.9
_DIRECTIONS = (1, 3, 6)


def _process(X: Any, y: Any, likelihood: Any, n_directions: int | None) -> Any:
    """Return the process, before it has learned anything."""
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
            self.kernel = gpytorch.kernels.ScaleKernel(base)
            if len(X) > _EXACT_ROWS:
                points = self.mapped(X[torch.randperm(len(X))[:_INDUCING]]).detach().clone()
                self.kernel = gpytorch.kernels.InducingPointKernel(self.kernel, points, likelihood)

        def mapped(self, inputs: Any) -> Any:
            return inputs if self.B is None else inputs @ self.B.T

        def forward(self, inputs: Any) -> Any:
            P = self.mapped(inputs)
            return gpytorch.distributions.MultivariateNormal(self.mean(P), self.kernel(P))

    return Process()


def _learn(X: Any, y: Any, n_directions: int | None, seconds: float) -> tuple[float, Any, int]:
    """Return the best evidence seen, the process with it, and the steps made."""
    import gpytorch
    import torch

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = _process(X, y, likelihood, n_directions).to(X)
    model.train()
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    adam = torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE)
    began, n_steps, best, kept = time.perf_counter(), 0, -np.inf, model.state_dict()
    while n_steps == 0 or (time.perf_counter() - began < seconds and n_steps < _MOST_STEPS):
        adam.zero_grad()
        value = evidence(model(X), y)
        (-value).backward()
        if value.item() > best:
            best, kept = value.item(), {name: entry.clone() for name, entry in model.state_dict().items()}
        adam.step()
        n_steps += 1
    model.load_state_dict(kept)
    return best, model, n_steps


def _run(task: Task, choices: tuple[int | None, ...]) -> Answer:
    import torch

    torch.set_num_threads(task.threads)
    torch.manual_seed(task.seed)
    began = time.perf_counter()
    spread = task.X.std(axis=0)
    mean, scale = task.X.mean(axis=0), np.where(spread > 0, spread, 1.0)
    y_mean, y_scale = float(task.y.mean()), float(task.y.std()) or 1.0
    X, y = torch.tensor((task.X - mean) / scale), torch.tensor((task.y - y_mean) / y_scale)
    found = [_learn(X, y, d, _SHARE * task.seconds / len(choices)) for d in choices]
    best, model, _ = max(found, key=lambda each: each[0])
    fit_seconds = time.perf_counter() - began
    model.eval()
    with torch.no_grad():
        X_test = torch.tensor((task.X_test - mean) / scale)
        predicted = torch.cat([model(block).mean for block in torch.split(X_test, _BLOCK)]).numpy()
    components = None if model.B is None else model.B.detach().numpy() / scale
    steps = ", ".join(str(n_steps) for _, _, n_steps in found)
    return Answer(predicted * y_scale + y_mean, components, fit_seconds, f"steps: {steps}; evidence {best:.3f}")


def _map(task: Task) -> Answer:
    return _run(task, tuple(dict.fromkeys(min(d, task.X.shape[1]) for d in _DIRECTIONS)))


METHODS = {
    "gpytorch_ard": Method(
        lambda task: _run(task, (None,)),
        "GPyTorch's Gaussian process, Matern 3/2 with a length for each input, by the evidence",
        ("torch", "gpytorch"),
    ),
    "gpytorch_map": Method(
        _map,
        "GPyTorch's Gaussian process, Gaussian kernel on a learned linear map of 1, 3 or 6 rows, by the evidence",
        ("torch", "gpytorch"),
    ),
}
