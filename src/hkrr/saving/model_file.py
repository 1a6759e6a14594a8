"""Functions that save a fitted model to one file and load it again. Files from any source are safe to load.

If a file was written by an earlier version of the library, parameters that the file lacks get their default values. If
a file was written by a later version and contains unknown parameters or attributes, `load` raises an error.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.neighbors import KNeighborsRegressor
from sklearn.utils.validation import check_is_fitted

from hkrr._base.linear_algebra import Array
from hkrr._storage.atomic_write import replace_file
from hkrr._storage.json_codec import Arrays, decode, encode
from hkrr._storage.safetensors_format import FORMAT, Refusal, pack, unpack
from hkrr.exceptions import ModelFileError
from hkrr.saving.schemas import SCHEMAS, Schema, check_model, schema_of_file

_DAMAGED = "it is damaged, or was not written by hkrr.save"
# Parameters that are stored as None. Callbacks are functions, which cannot be stored. The path of a checkpoint is valid
# only on the machine of the fit.
LEFT_OUT = ("callbacks", "checkpoint")
# Attributes that are stored elsewhere: the feature names in the hkrr metadata, and the history in result_.
_ELSEWHERE = {"feature_names_in_", "history_"}
# For each attribute that had another name in files of earlier versions: its present name and its former name.
_FORMER_NAMES = {"map_": "components_"}


def encode_model(model: BaseEstimator, arrays: Arrays, prefix: str = "") -> dict[str, Any]:
    """Return the JSON representation of a fitted model, and add its arrays to `arrays`.

    The names of the arrays start with the prefix.
    """
    schema = SCHEMAS[type(model).__name__]
    held, parameters = vars(model), schema.parameter_names()
    unknown = sorted(set(held) - {*parameters, *schema.attributes, *schema.optional, *_ELSEWHERE})
    if schema.is_own and unknown:
        raise Refusal(f"it has the unknown attribute {unknown[0]!r}, which cannot be stored; delete this attribute")
    attributes: dict[str, Any] = {}
    for name in (*schema.attributes, *schema.optional):
        inner = schema.attributes.get(name)
        if name in held and isinstance(inner, tuple):
            attributes[name] = {"model": encode_model(held[name], arrays, f"{prefix}{name}.")}
        elif name in held and isinstance(inner, list):
            attributes[name] = _encode_models(held[name], arrays, f"{prefix}{name}")
        elif name in held:
            attributes[name] = encode(held[name], f"{prefix}{name}", arrays)
    return {
        "class": type(model).__name__,
        "parameters": {
            name: held[name] is not None
            if name in schema.copies
            else _encode_parameter(name, held[name], arrays, prefix)
            for name in parameters
        },
        "attributes": attributes,
    }


def _encode_models(models: list[BaseEstimator], arrays: Arrays, name: str) -> list[Any]:
    """Return the JSON representations of a list of models. Centers equal to those of the first model are not stored."""
    contents = [encode_model(model, arrays, f"{name}.{i}.") for i, model in enumerate(models)]
    for i, content in enumerate(contents[1:], start=1):
        if np.array_equal(models[i].centers_, models[0].centers_):
            del arrays[f"{name}.{i}.centers_"], content["attributes"]["centers_"]
    return contents


def _encode_parameter(name: str, value: Any, arrays: Arrays, prefix: str) -> Any:
    if name in LEFT_OUT:
        return None
    try:
        return encode(value, f"{prefix}parameters.{name}", arrays)
    except Refusal as error:
        raise Refusal(f"{error}; before saving, set another value with model.set_params({name}=...)") from None


def decode_model(
    content: Any,
    arrays: Arrays,
    allowed: tuple[str, ...] | list[str],
    feature_names: Any = None,
    centers: Array | None = None,
) -> BaseEstimator:
    """Create a model from the JSON representation of `encode_model`, check the model, and return it.

    The class of the model must be in `allowed`. The arrays of the model are removed from `arrays`. If `content` has no
    centers, the model gets the centers in `centers`.
    """
    if not isinstance(content, dict) or set(content) != {"class", "parameters", "attributes"}:
        raise Refusal(f"its content is not a model ({_DAMAGED})")
    name, parameters, attributes = content["class"], content["parameters"], content["attributes"]
    if not isinstance(name, str) or name not in allowed:
        raise Refusal(
            f"its class {str(name)[:40]!r} is unknown; install the version of hkrr that wrote the file, or a newer one",
            remedied=True,
        )
    schema = schema_of_file(name, attributes)
    attributes = _with_present_names(attributes, schema)
    _check_names(f"parameters of {name}", parameters, set(schema.parameter_names()))
    _check_names(f"attributes of {name}", attributes, {*schema.attributes, *schema.optional})
    model = schema.cls(**{key: decode(value, arrays) for key, value in parameters.items()})
    for key, value in attributes.items():
        inner = schema.attributes.get(key)
        if isinstance(inner, tuple):
            setattr(model, key, _decode_inner(value, arrays, inner))
        elif isinstance(inner, list):
            setattr(model, key, _decode_models(value, arrays, inner, feature_names))
        else:
            setattr(model, key, decode(value, arrays))
    if centers is not None and not hasattr(model, "centers_"):
        model.centers_ = centers
    if feature_names is not None:
        model.feature_names_in_ = _names(feature_names)
    check_model(model, schema)
    if schema.convert is not None:
        model = schema.convert(model)
        check_model(model)
    for key, attribute in schema.copies.items():
        setattr(model, key, clone(getattr(model, attribute)) if getattr(model, key) else None)
    if "result_" in schema.attributes:
        model.history_ = model.result_.history
    return _with_tree(model) if isinstance(model, KNeighborsRegressor) else model


def _with_tree(model: KNeighborsRegressor) -> KNeighborsRegressor:
    """Fit a loaded KNeighborsRegressor again to build its search tree, and return the regressor.

    The tree is not stored in files, because the same rows always give the same tree.
    """
    try:
        return model.fit(model._fit_X, model._y)
    except ValueError as error:
        raise Refusal(f"its KNeighborsRegressor is invalid ({error})") from None


def _with_present_names(attributes: Any, schema: Schema) -> Any:
    """Return the attributes of a file, with former names (see `_FORMER_NAMES`) replaced by the present names."""
    for name, former in _FORMER_NAMES.items():
        if name in schema.attributes and isinstance(attributes, dict) and name not in attributes:
            attributes = {(name if key == former else key): value for key, value in attributes.items()}
    return attributes


def _decode_inner(value: Any, arrays: Arrays, allowed: tuple[str, ...]) -> BaseEstimator:
    if not isinstance(value, dict) or set(value) != {"model"}:
        raise Refusal(f"its content is not a model ({_DAMAGED})")
    return decode_model(value["model"], arrays, allowed)


def _decode_models(contents: Any, arrays: Arrays, allowed: list[str], feature_names: Any) -> list[BaseEstimator]:
    if not isinstance(contents, list):
        raise Refusal(f"its content is not a list of models ({_DAMAGED})")
    models: list[BaseEstimator] = []
    for content in contents:
        centers = models[0].centers_ if models else None
        models.append(decode_model(content, arrays, allowed, feature_names, centers))
    return models


def _check_names(what: str, found: Any, known: set[str]) -> None:
    if not isinstance(found, dict):
        raise Refusal(f"the {what} are not a JSON object ({_DAMAGED})")
    for name in sorted(set(found) - known):
        raise Refusal(
            f"{name[:40]!r} is not one of the known {what}; install the version of hkrr that wrote the file, or a "
            "newer one",
            remedied=True,
        )


def _names(names: Any) -> Array:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Refusal(f"its feature names are not strings ({_DAMAGED})")
    return np.array(names, dtype=object)


_CLASSES = tuple(name for name, schema in SCHEMAS.items() if schema.is_own and not schema.is_part)
_REMEDY = "use another copy of the file, or save the model again"
_FIELDS = {"format", "library", "class", "parameters", "attributes", "feature_names", "summary", "left_out"}


def save(model: BaseEstimator, path: str | os.PathLike[str]) -> None:
    """Save a fitted model to a file. The file is written completely or not at all.

    Parameters
    ----------
    model : estimator
        A fitted HyperKernelRidge, HyperKernelRidgeCV, HyperKernelEnsemble, HyperKernelClassifier,
        `hkrr.tables.TableRegressor`, `hkrr.tables.TableClassifier` or estimator of `hkrr.baselines`.
    path : str or path-like
        The file to write. An existing file is replaced only if saving succeeds.

    Raises
    ------
    NotFittedError
        If the model is not fitted.
    TypeError
        If the class of the model is not supported.
    ValueError
        If a parameter or attribute of the model cannot be stored, for example a user-defined kernel.
    OSError
        If the file cannot be written, for example because the disk is full.

    Notes
    -----
    The parameters `callbacks` and `checkpoint` are not stored. They are None in a loaded model.

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
    schema = SCHEMAS.get(type(model).__name__)
    if schema is None or schema.cls is not type(model) or type(model).__name__ not in _CLASSES:
        raise TypeError(
            f"hkrr.save supports {', '.join(_CLASSES)}; got a {type(model).__name__}. joblib.dump saves any estimator, "
            "but joblib.load can run any code in a file, so use joblib only for files that you trust"
        )
    check_is_fitted(model)
    try:
        check_model(model)
        data = _as_bytes(model)
    except Refusal as refusal:
        raise ValueError(f"The {type(model).__name__} cannot be saved: {refusal}") from None
    replace_file(path, data)


def load(path: str | os.PathLike[str]) -> Any:
    """Load a model that was saved by `save`. Loading runs no code from the file, so files from any source are safe.

    Parameters
    ----------
    path : str or path-like
        The file to read.

    Returns
    -------
    estimator
        The fitted model. On the same machine its predictions are bitwise equal to the predictions of the saved model.

    Raises
    ------
    ModelFileError
        If the file contains no model, is damaged, or has a newer format. The message says what to do.
    OSError
        If the file does not exist or cannot be read.

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
                f"the field {odd[:40]!r} of its metadata is missing or unknown; install a newer hkrr", remedied=True
            )
        content = {name: header[name] for name in ("class", "parameters", "attributes")}
        model = decode_model(content, arrays, _CLASSES, header["feature_names"])
        if arrays:
            raise Refusal(f"it contains an unused tensor, {min(arrays)[:40]!r}")
    except Refusal as refusal:
        remedy = "" if refusal.remedied else f"; {_REMEDY}"
        raise ModelFileError(f"{os.fspath(path)} cannot be loaded: {refusal}{remedy}.") from None
    return model


def written_by(path: str | os.PathLike[str]) -> str:
    """Return the version of hkrr that wrote a model file, or raise ModelFileError."""
    try:
        return str(unpack(path)[0]["library"])
    except Refusal as refusal:
        raise ModelFileError(f"{os.fspath(path)} cannot be loaded: {refusal}.") from None


def _as_bytes(model: BaseEstimator) -> bytes:
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


def _summary(model: BaseEstimator) -> dict[str, Any]:
    """Return facts about the fit, such as the number of centers, for human readers of the file. `load` ignores them."""
    found: dict[str, Any] = {"n_features": int(model.n_features_in_)}
    if hasattr(model, "members_"):
        found["n_members"] = len(model.members_)
    if hasattr(model, "dual_coef_"):
        found["n_centers"] = len(model.dual_coef_)
        found["n_targets"] = 1 if model.dual_coef_.ndim == 1 else model.dual_coef_.shape[1]
    if hasattr(model, "map_") or hasattr(model, "components_"):
        found["n_components"] = len(model.map_ if hasattr(model, "map_") else model.components_)
    if hasattr(model, "n_iter_"):
        found["n_iter"] = int(model.n_iter_)
    if hasattr(model, "result_"):
        found["stopped"] = model.result_.reason
        if model.result_.history.get("time"):
            found["seconds"] = model.result_.history["time"][-1]
    return {name: encode(value, name, {}) for name, value in found.items()}
