"""Errors and warnings of the library."""

from __future__ import annotations

from sklearn.exceptions import ConvergenceWarning


class FitError(RuntimeError):
    """Raised when a fit fails to produce a valid model. The message gives the reason and says what to do.

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
    Idle reported no iterate: its method minimize must call the monitor.
    """


class ModelFileError(ValueError):
    """Raised when a model cannot be loaded from a file. The message names the file and the reason, and says what to do.

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
    """Raised when a table cannot be read or used. The message names the file or the column, and says what to do."""


class CheckpointError(ValueError):
    """Raised when a checkpoint file belongs to a different fit, is damaged, or is in use by another fit.

    The message names the file and says what to do.

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
    """Base class of warnings about a fit. The message says what is wrong, why it matters, and what to do.

    Examples
    --------
    In unattended jobs, all warnings about a fit can be turned into errors:

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
    """The linear system for the coefficients is so ill-conditioned that rounding errors affect the predictions.

    The warning is also issued if a large number had to be added to the diagonal of a kernel matrix to make it positive
    definite.

    Examples
    --------
    The warning can be ignored if the lower accuracy is acceptable:

    >>> import warnings, hkrr
    >>> warnings.filterwarnings("ignore", category=hkrr.IllConditionedWarning)
    """


class EdgeWarning(HKRRWarning):
    """Lambda, the number of directions or gamma is at an end of its range, so a better value may lie outside the range.

    Examples
    --------
    >>> import warnings, hkrr
    >>> from hkrr.datasets import make_mim_sines
    >>> data = make_mim_sines(50, n_features=3, n_components=1, random_state=0)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     # With such a large gamma, the kernel treats no two rows as similar.
    ...     model = hkrr.HyperKernelRidge(1, gamma=1e12, random_state=0).fit(data.X, data.y)
    >>> [warning.category.__name__ for warning in caught]
    ['EdgeWarning']
    >>> model.diagnostics_.at_edge
    ('gamma',)
    """


class PoorFitWarning(HKRRWarning):
    """The model is hardly better than the mean of y, or many predictions are far outside the range of y.

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
    """The model explains much of the variance of y on its training rows, but probably almost nothing on new rows.

    The proportion of variance explained on new rows is estimated by generalized cross-validation; see `Diagnostics`.

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
    """For most starting maps, the objective could not be evaluated, so only a few starting maps were compared.

    Examples
    --------
    In unattended jobs the warning can be turned into an error:

    >>> import warnings, hkrr
    >>> warnings.filterwarnings("error", category=hkrr.FailedStartsWarning)
    """


class NotConvergedWarning(HKRRWarning, ConvergenceWarning):
    """The solver was stopped while its objective was still decreasing.

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
