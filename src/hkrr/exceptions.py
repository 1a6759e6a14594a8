"""The library's own errors and warnings."""

from __future__ import annotations

from sklearn.exceptions import ConvergenceWarning


class FitError(RuntimeError):
    """The optimisation left no sound model; the message says why, and what to change.

    Examples
    --------
    >>> from hkrr import FitError, HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> class Idle:
    ...     def minimize(self, objective, B0, monitor):
    ...         pass
    >>> data = make_mim_sines(50, n_features=3, n_components=1, random_state=0)
    >>> try:
    ...     HyperKernelRidge(1, solver=Idle(), random_state=0).fit(data.X, data.y)
    ... except FitError as error:
    ...     print(error)
    Idle reported no iterate: its minimize must call the monitor.
    """


class ModelFileError(ValueError):
    """A file holds no model that can be read; the message names the file, says why, and what to do.

    Examples
    --------
    >>> import tempfile, hkrr
    >>> with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
    ...     try:
    ...         hkrr.load(file.name)
    ...     except hkrr.ModelFileError as error:
    ...         print("cannot be loaded" in str(error))
    True
    """


class TableError(ValueError):
    """A table cannot be read or used; the message names the file or the column, and what to do."""


class CheckpointError(ValueError):
    """A checkpoint cannot be used: of another fit, damaged, or in use; the message names the file and the remedy.

    Examples
    --------
    >>> import tempfile, hkrr
    >>> from hkrr.datasets import make_mim_sines
    >>> data = make_mim_sines(50, n_features=3, n_components=1, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = hkrr.HyperKernelRidge(1, checkpoint=f"{folder}/fit", random_state=0).fit(data.X, data.y)
    ...     try:
    ...         model.set_params(reg_lambda=0.1).fit(data.X, data.y)
    ...     except hkrr.CheckpointError as error:
    ...         print("reg_lambda" in str(error))
    True
    """


class HKRRWarning(UserWarning):
    """Something about a fit deserves a person's attention; the message says what, why it matters, and what to do.

    Examples
    --------
    To have a doubtful fit end in an error, in a job that nobody watches:

    >>> import warnings, hkrr
    >>> from hkrr.datasets import make_mim_sines
    >>> data = make_mim_sines(50, n_features=3, n_components=1, random_state=0)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", hkrr.HKRRWarning)
    ...     model = hkrr.HyperKernelRidge(1, random_state=0).fit(data.X, data.y)
    >>> model.diagnostics_.findings()
    []
    """


class IllConditionedWarning(HKRRWarning):
    """The coefficients solve a system that rounding leaves few digits of.

    Examples
    --------
    Where it is known, and accepted:

    >>> import warnings, hkrr
    >>> warnings.filterwarnings("ignore", category=hkrr.IllConditionedWarning)
    """


class EdgeWarning(HKRRWarning):
    """Lambda, the number of directions or gamma ended at an edge of what could be chosen: beyond it may be better.

    Examples
    --------
    >>> import warnings, hkrr
    >>> from hkrr.datasets import make_mim_sines
    >>> data = make_mim_sines(50, n_features=3, n_components=1, random_state=0)
    >>> with warnings.catch_warnings(record=True) as caught:  # to a kernel so short no two rows are alike
    ...     warnings.simplefilter("always")
    ...     model = hkrr.HyperKernelRidge(1, gamma=1e12, random_state=0).fit(data.X, data.y)
    >>> [warning.category.__name__ for warning in caught]
    ['EdgeWarning']
    >>> model.diagnostics_.at_edge
    ('gamma',)
    """


class PoorFitWarning(HKRRWarning):
    """The model says little more than the mean of y, or has to be cut down to the size of y.

    Examples
    --------
    >>> import warnings, hkrr
    >>> from hkrr.datasets import make_mim_sines
    >>> data = make_mim_sines(50, n_features=3, n_components=1, random_state=0)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     model = hkrr.HyperKernelRidge(1, reg_lambda=1e6, random_state=0).fit(data.X, data.y)
    >>> [warning.category.__name__ for warning in caught]
    ['PoorFitWarning']
    >>> model.diagnostics_.explained_share < 1e-3
    True
    """


class OverfitWarning(HKRRWarning):
    """The model explains much of y on its training rows, and by their own account next to nothing on others.

    Examples
    --------
    >>> import numpy as np, warnings, hkrr
    >>> noise = np.random.default_rng(0).normal(size=(100, 6))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     model = hkrr.HyperKernelRidge(random_state=0).fit(noise[:, :5], noise[:, 5])
    >>> [warning.category.__name__ for warning in caught]
    ['OverfitWarning']
    """


class FailedStartsWarning(HKRRWarning):
    """Most of the starts could not be evaluated: the map is the best of few.

    Examples
    --------
    In a job that nobody watches, as an error:

    >>> import warnings, hkrr
    >>> warnings.filterwarnings("error", category=hkrr.FailedStartsWarning)
    """


class NotConvergedWarning(HKRRWarning, ConvergenceWarning):
    """The solver was stopped while its objective was still falling.

    Examples
    --------
    >>> import warnings, hkrr
    >>> from hkrr.datasets import make_mim_sines
    >>> data = make_mim_sines(60, n_features=20, n_components=2, random_state=0)
    >>> settings = {"criterion": "evidence", "reg_lambda": "auto", "max_iter": 50}
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     model = hkrr.HyperKernelRidge(2, random_state=0, **settings).fit(data.X, data.y)
    >>> [warning.category.__name__ for warning in caught]
    ['NotConvergedWarning']
    >>> model.result_.reason
    'max_iter'
    """
