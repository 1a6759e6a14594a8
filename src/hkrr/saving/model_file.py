"""`save` and `load`: a fitted model in one file, which a stranger's hands cannot make harmful."""

from __future__ import annotations

import os
from typing import Any

from sklearn.utils.validation import check_is_fitted

from hkrr.disk import replace_file
from hkrr.exceptions import ModelFileError
from hkrr.records.format import FORMAT, Refusal, pack, unpack
from hkrr.records.values import Arrays, encode
from hkrr.saving.layouts import LAYOUTS, check_model
from hkrr.saving.models import LEFT_OUT, decode_model, encode_model

_CLASSES = tuple(name for name, layout in LAYOUTS.items() if layout.ours)
_REMEDY = "take another copy of the file, or save the model again"
_FIELDS = {"format", "library", "class", "parameters", "attributes", "feature_names", "summary", "left_out"}


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to one file, whole or not at all.

    Parameters
    ----------
    model : HyperKernelRidge, HyperKernelRidgeCV, `hkrr.tables.TableRegressor` or one of `hkrr.baselines`, fitted
    path : str or path
        The file; one that is there is replaced, and stays as it was should anything go wrong.

    Raises
    ------
    NotFittedError
        For a model that is not fitted.
    TypeError, ValueError
        For other objects, and models with a part that a file has no place for (a kernel of one's own, say).
    OSError
        Where the disk is full or the folder cannot be written to.

    Notes
    -----
    `callbacks` are functions, and `checkpoint` is a path of this machine: they are left out, and None when loaded.

    Examples
    --------
    >>> import tempfile, hkrr
    >>> from hkrr.datasets import make_mim_sines
    >>> data = make_mim_sines(200, n_features=5, n_components=2, random_state=0)
    >>> model = hkrr.HyperKernelRidge(2, random_state=0).fit(data.X, data.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hkrr.save(model, f"{folder}/model.safetensors")
    ...     again = hkrr.load(f"{folder}/model.safetensors")
    >>> bool((again.predict(data.X) == model.predict(data.X)).all())
    True
    """
    layout = LAYOUTS.get(type(model).__name__)
    if layout is None or layout.cls is not type(model) or not layout.ours:
        raise TypeError(
            f"hkrr.save takes {', '.join(_CLASSES)}; got a {type(model).__name__}. (joblib.dump takes any estimator; "
            "joblib.load runs what the file says: only for files you trust)"
        )
    check_is_fitted(model)
    try:
        check_model(model)
        data = _as_bytes(model)
    except Refusal as refusal:
        raise ValueError(f"The {type(model).__name__} cannot be saved: {refusal}") from None
    replace_file(path, data)


def load(path: str | os.PathLike[str]) -> Any:
    """Return the model of a file that `save` wrote. No code is run from the file, whoever wrote it.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    The fitted estimator; its predictions are those of the saved one, bit for bit on the same machine.

    Raises
    ------
    ModelFileError
        Where the file holds no model, a damaged one, or one of a newer format; the message says what to do.
    OSError
        Where there is no such file, or it must not be read.

    Examples
    --------
    >>> import tempfile, hkrr
    >>> from hkrr.datasets import make_mim_sines
    >>> data = make_mim_sines(200, n_features=5, n_components=2, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hkrr.save(hkrr.HyperKernelRidge(2, random_state=0).fit(data.X, data.y), f"{folder}/model.safetensors")
    ...     hkrr.load(f"{folder}/model.safetensors").components_.shape
    (2, 5)
    """
    try:
        header, arrays = unpack(path)
        if set(header) != _FIELDS:
            odd = sorted(set(header) ^ _FIELDS)[0]
            raise Refusal(
                f"its header has a field too many or too few, {odd[:40]!r}: install a newer hkrr", remedied=True
            )
        content = {name: header[name] for name in ("class", "parameters", "attributes")}
        model = decode_model(content, arrays, _CLASSES, header["feature_names"])
        if arrays:
            raise Refusal(f"it holds a tensor that nothing uses, {min(arrays)[:40]!r}")
    except Refusal as refusal:
        remedy = "" if refusal.remedied else f"; {_REMEDY}"
        raise ModelFileError(f"{os.fspath(path)} cannot be loaded: {refusal}{remedy}.") from None
    return model


def written_by(path: str | os.PathLike[str]) -> str:
    """Return the version of hkrr that wrote a file."""
    try:
        return str(unpack(path)[0]["library"])
    except Refusal as refusal:
        raise ModelFileError(f"{os.fspath(path)} cannot be loaded: {refusal}.") from None


def _as_bytes(model: Any) -> bytes:
    from hkrr._version import __version__

    arrays: Arrays = {}
    names = getattr(model, "feature_names_in_", None)
    header = {
        "format": FORMAT,
        "library": __version__,
        **encode_model(model, arrays),
        "feature_names": None if names is None else [str(name) for name in names],
        "summary": _summary(model),
        "left_out": [name for name in LEFT_OUT if getattr(model, name, None) is not None],
    }
    return pack(header, arrays)


def _summary(model: Any) -> dict[str, Any]:
    """Return what a reader of the header may want to know of the training; loading does not need it."""
    found: dict[str, Any] = {"n_features": int(model.n_features_in_)}
    if hasattr(model, "dual_coef_"):
        found["n_centers"] = len(model.dual_coef_)
        found["n_targets"] = 1 if model.dual_coef_.ndim == 1 else model.dual_coef_.shape[1]
    if hasattr(model, "components_"):
        found["n_components"] = len(model.components_)
    if hasattr(model, "n_iter_"):
        found["n_iter"] = int(model.n_iter_)
    if hasattr(model, "result_"):
        found["stopped"] = model.result_.reason
        if model.result_.history.get("time"):
            found["seconds"] = model.result_.history["time"][-1]
    return {name: encode(value, name, {}) for name, value in found.items()}
