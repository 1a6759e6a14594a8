"""Models as JSON and arrays, and back.

A file that lacks a parameter was written before there was one, and gets its default; one that has a parameter or an
attribute too many was written by a newer library, and is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.neighbors import KNeighborsRegressor

from hkrr._arrays import Array
from hkrr.records.format import Refusal
from hkrr.records.values import Arrays, decode, encode
from hkrr.saving.layouts import LAYOUTS, check_model

_DAMAGED = "it was damaged, or hkrr.save did not write it"
# Parameters that are None in a file: functions, of which a file holds none, and a path of this machine.
LEFT_OUT = ("callbacks", "checkpoint")
# Kept otherwise: names stand in the header, and the history is a part of result_.
_ELSEWHERE = {"feature_names_in_", "history_"}


def encode_model(model: Any, arrays: Arrays, prefix: str = "") -> dict[str, Any]:
    """Return a fitted model as JSON; its arrays are put into `arrays`, under names that begin with the prefix."""
    layout = LAYOUTS[type(model).__name__]
    held, parameters = vars(model), layout.parameter_names()
    unknown = sorted(set(held) - {*parameters, *layout.attributes, *layout.optional, *_ELSEWHERE})
    if layout.ours and unknown:
        raise Refusal(f"it has {unknown[0]!r}, which a file has no place for: delete that attribute")
    attributes: dict[str, Any] = {}
    for name in (*layout.attributes, *layout.optional):
        if name in held and isinstance(layout.attributes.get(name), tuple):
            attributes[name] = {"model": encode_model(held[name], arrays, f"{prefix}{name}.")}
        elif name in held:
            attributes[name] = encode(held[name], f"{prefix}{name}", arrays)
    return {
        "class": type(model).__name__,
        "parameters": {
            name: held[name] is not None
            if name in layout.copies
            else _encode_parameter(name, held[name], arrays, prefix)
            for name in parameters
        },
        "attributes": attributes,
    }


def _encode_parameter(name: str, value: Any, arrays: Arrays, prefix: str) -> Any:
    if name in LEFT_OUT:
        return None
    try:
        return encode(value, f"{prefix}parameters.{name}", arrays)
    except Refusal as error:
        raise Refusal(f"{error}; as the fit is done, model.set_params({name}=...) to one that can be saved") from None


def decode_model(content: Any, arrays: Arrays, allowed: tuple[str, ...], feature_names: Any = None) -> Any:
    """Return the model that JSON and arrays stand for, checked; the arrays are taken out of `arrays`."""
    if not isinstance(content, dict) or set(content) != {"class", "parameters", "attributes"}:
        raise Refusal(f"it holds something that is no model: {_DAMAGED}")
    name, parameters, attributes = content["class"], content["parameters"], content["attributes"]
    if not isinstance(name, str) or name not in allowed:
        raise Refusal(
            f"its class {str(name)[:40]!r} is unknown here: install the hkrr that wrote it, or a newer one",
            remedied=True,
        )
    layout = LAYOUTS[name]
    _check_names(f"parameters of {name}", parameters, set(layout.parameter_names()))
    _check_names(f"attributes of {name}", attributes, {*layout.attributes, *layout.optional})
    model = layout.cls(**{key: decode(value, arrays) for key, value in parameters.items()})
    for key, value in attributes.items():
        inner = layout.attributes.get(key)
        setattr(model, key, _decode_inner(value, arrays, inner) if isinstance(inner, tuple) else decode(value, arrays))
    if feature_names is not None:
        model.feature_names_in_ = _names(feature_names)
    check_model(model)
    for key, attribute in layout.copies.items():
        setattr(model, key, clone(getattr(model, attribute)) if getattr(model, key) else None)
    if "result_" in layout.attributes:
        model.history_ = model.result_.history
    return _with_tree(model) if isinstance(model, KNeighborsRegressor) else model


def _with_tree(model: Any) -> Any:
    """Return nearest neighbours that are fitted anew: their tree is no array, and always the same for the same rows."""
    try:
        return model.fit(model._fit_X, model._y)
    except ValueError as error:
        raise Refusal(f"its nearest neighbours cannot be: {error}") from None


def _decode_inner(value: Any, arrays: Arrays, allowed: tuple[str, ...]) -> Any:
    if not isinstance(value, dict) or set(value) != {"model"}:
        raise Refusal(f"it holds something that is no model: {_DAMAGED}")
    return decode_model(value["model"], arrays, allowed)


def _check_names(what: str, found: Any, known: set[str]) -> None:
    if not isinstance(found, dict):
        raise Refusal(f"the {what} are none: {_DAMAGED}")
    for name in sorted(set(found) - known):
        raise Refusal(
            f"{name[:40]!r} is unknown among the {what}: install the hkrr that wrote it, or a newer one", remedied=True
        )


def _names(names: Any) -> Array:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Refusal(f"its feature names are no texts: {_DAMAGED}")
    return np.array(names, dtype=object)
