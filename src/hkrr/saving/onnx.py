"""Export of models to ONNX graphs, which predict without Python.

The input and the output of a graph are float32, but the graph computes in float64, as the library does. The
coefficients of a kernel model are large numbers of both signs, and the terms of a prediction almost cancel, so float32
would leave few correct digits. The graph takes the same precautions against rounding errors as `predict`. The mean of
the centers is subtracted before distances are computed. For kernels that are not differentiable at distance zero,
distances below the rounding error are set to zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from hkrr import kernels
from hkrr._base.linear_algebra import EPS, Array, project
from hkrr.baselines._kernel_expansion_regressor import KernelExpansionRegressor
from hkrr.estimators.ensemble import HyperKernelEnsemble
from hkrr.estimators.fitted.base import MapModel
from hkrr.estimators.ridge_cv import HyperKernelRidgeCV
from hkrr.rows.column_transform import ColumnTransform

# Versions of the ONNX operators and of the ONNX file format. All recent ONNX runtimes support them.
_OPSET, _IR = 17, 8


def to_onnx(model: MapModel | HyperKernelEnsemble | KernelExpansionRegressor) -> Any:
    """Convert a fitted model to an ONNX graph.

    Requires the extra ``hkrr[onnx]``. ``onnx.save(graph, path)`` writes the graph, and onnxruntime runs it.

    Parameters
    ----------
    model : estimator
        A fitted HyperKernelRidge, HyperKernelRidgeCV or HyperKernelEnsemble, or a KernelRidgeCV, RBFNetwork,
        HyperRBFNetwork or RecursiveFeatureMachine of `hkrr.baselines`. Its kernels must be from `hkrr.kernels`.

    Returns
    -------
    onnx.ModelProto
        A graph with the input "X" of shape (N, n_features) and the output "y", which has the same shape as the output
        of `predict`. Both are float32.

    Raises
    ------
    NotFittedError
        If the model is not fitted.
    TypeError
        If the estimator or its kernel is not supported.
    ImportError
        If onnx is not installed.

    Examples
    --------
    >>> import hkrr
    >>> from hkrr.datasets import make_mim_sines
    >>> data = make_mim_sines(200, n_features=5, n_components=2, random_state=0)
    >>> graph = hkrr.to_onnx(hkrr.HyperKernelRidge(2, random_state=0).fit(data.X, data.y))
    >>> graph.graph.input[0].name, graph.graph.output[0].name
    ('X', 'y')
    """
    if not isinstance(model, MapModel | HyperKernelEnsemble | KernelExpansionRegressor):
        raise TypeError(
            "hkrr.to_onnx supports HyperKernelRidge, HyperKernelRidgeCV, HyperKernelEnsemble, KernelRidgeCV, "
            f"RBFNetwork, HyperRBFNetwork and RecursiveFeatureMachine; got a {type(model).__name__}. For scikit-learn "
            "estimators, use skl2onnx"
        )
    check_is_fitted(model)
    try:
        import onnx
    except ImportError as error:
        raise ImportError("hkrr.to_onnx needs onnx: python -m pip install 'hkrr[onnx]'") from error

    from hkrr._version import __version__

    graph = _Graph()
    X = graph.add("Cast", "X", to=onnx.TensorProto.DOUBLE)
    y = _weighted_sum(graph, model, X) if isinstance(model, HyperKernelEnsemble) else _prediction(graph, model, X)
    graph.add("Cast", y, to=onnx.TensorProto.FLOAT, output="y")

    real = onnx.TensorProto.FLOAT
    inputs = [onnx.helper.make_tensor_value_info("X", real, ["N", model.n_features_in_])]
    outputs = [onnx.helper.make_tensor_value_info("y", real, ["N", *np.shape(model.intercept_)])]
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, type(model).__name__, inputs, outputs, graph.constants),
        producer_name="hkrr",
        producer_version=__version__,
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
    )
    onnx.checker.check_model(proto)
    return proto


class _Graph:
    """The nodes and constants of a graph under construction."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: Any, output: str | None = None, **attributes: Any) -> str:
        """Add a node and return the name of its output.

        Each input is a number, an array, or the name of the output of another node.
        """
        from onnx.helper import make_node

        names = [each if isinstance(each, str) else self._constant(each) for each in inputs]
        output = output or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(make_node(operator, names, [output], **attributes))
        return output

    def _constant(self, value: Any) -> str:
        from onnx.numpy_helper import from_array

        name = f"constant_{len(self.constants)}"
        # Lists contain axes or indices, which must be integers. All other constants are operands of arithmetic.
        dtype = np.int64 if isinstance(value, list) else np.float64
        self.constants.append(from_array(np.array(value, dtype=dtype, order="C"), name))
        return name


def _weighted_sum(graph: _Graph, model: HyperKernelEnsemble, X: str) -> str:
    """Add nodes that compute the predictions of an ensemble, and return the name of their output."""
    members = zip(model.weights_, model.members_, strict=True)
    terms = [graph.add("Mul", _prediction(graph, member, X), weight) for weight, member in members]
    return graph.add("Sum", *terms, (1.0 - np.sum(model.weights_)) * model.intercept_)


def _prediction(graph: _Graph, model: MapModel | KernelExpansionRegressor, X: str) -> str:
    """Add nodes that compute the predictions of a single kernel expansion, and return the name of their output."""
    if isinstance(model, MapModel) and model.column_transform_ is not None:
        X = _transformed(graph, model.column_transform_, X)
    P, B = graph.add("Sub", X, model.x_offset_), model.map_ if isinstance(model, MapModel) else model.components_
    P = graph.add("Mul", P, B) if B.ndim == 1 else graph.add("MatMul", P, B.T)
    K = _kernel(graph, model.kernel_, P, project(model.centers_ - model.x_offset_, B))
    y = graph.add("Add", graph.add("MatMul", K, model.dual_coef_), model.intercept_)
    if isinstance(model, HyperKernelRidgeCV) and model.truncate:
        # The operator Clip supports only one bound for all targets, but each target has its own bound.
        y = graph.add("Min", graph.add("Max", y, np.negative(model.truncation_)), model.truncation_)
    return y


def _transformed(graph: _Graph, transform: ColumnTransform, X: str) -> str:
    """Add nodes that transform the columns, and return the name of their output.

    Between two knots, a function increases by the clipped distance from the left knot times its slope.
    """
    knots, values, ranked = transform.knots, transform.values, transform.ranked.tolist()
    width = np.diff(knots, axis=1)
    slope = np.diff(values, axis=1) / np.where(width > 0, width, 1.0)
    some = graph.add("Unsqueeze", graph.add("Gather", X, ranked, axis=1), [2])
    distance = graph.add("Min", graph.add("Max", graph.add("Sub", some, knots[:, :-1]), 0.0), width)
    scores = graph.add("ReduceSum", graph.add("Mul", distance, slope), [2], keepdims=0)
    scores = graph.add("Add", scores, values[:, 0])
    linear = graph.add("Div", graph.add("Sub", X, transform.center), transform.scale)
    # The columns are in the order of both parts: first the linear columns, then the ranked columns.
    others = [j for j in range(len(transform.center)) if j not in set(ranked)]
    both = graph.add("Concat", graph.add("Gather", linear, others, axis=1), scores, axis=1)
    return graph.add("Gather", both, np.argsort([*others, *ranked]).tolist(), axis=1)


def _kernel(graph: _Graph, kernel: kernels.Kernel, P: str, C: Array) -> str:
    """Add nodes that compute the kernel matrix ``k(p_i, c_j)``, and return the name of its output."""
    if type(kernel) not in [type(known) for known in kernels.KERNELS.values()]:
        raise TypeError(f"hkrr.to_onnx supports only the kernels of hkrr.kernels; got a {type(kernel).__name__}")
    if isinstance(kernel, kernels.Polynomial):
        product = graph.add("MatMul", P, kernel.scale * C.T)
        return graph.add("Pow", graph.add("Add", product, kernel.coef0), float(kernel.degree))
    if isinstance(kernel, kernels.ProductMatern | kernels.Anova):
        return _coordinatewise(graph, kernel, P, C)
    assert isinstance(kernel, kernels.Radial)
    u = _scaled_squared_distances(graph, kernel, P, C)
    if isinstance(kernel, kernels.RationalQuadratic):
        return graph.add("Pow", graph.add("Add", graph.add("Div", u, kernel.alpha), 1.0), -float(kernel.alpha))
    if isinstance(kernel, kernels.InverseMultiquadric):
        return graph.add("Pow", graph.add("Add", graph.add("Mul", u, 2.0), 1.0), -0.5)
    if isinstance(kernel, kernels.Matern):
        return _matern(graph, kernel.nu, graph.add("Sqrt", graph.add("Mul", u, 2.0)))
    if isinstance(kernel, kernels.Gaussian):
        return graph.add("Exp", graph.add("Neg", u))
    raise TypeError(f"hkrr.to_onnx has no formula for the kernel {type(kernel).__name__}")


def _scaled_squared_distances(graph: _Graph, kernel: kernels.Radial, P: str, C: Array) -> str:
    """Add nodes that compute ``gamma |p_i - c_j|^2``, and return the name of their output.

    The mean of the centers is first subtracted from all points.
    """
    origin = C.mean(axis=0)
    P, C = graph.add("Sub", P, origin), C - origin
    p_norms = graph.add("ReduceSumSquare", P, axes=[1], keepdims=1)
    norms = graph.add("Add", p_norms, np.sum(C * C, axis=1))
    u = graph.add("Abs", graph.add("Sub", norms, graph.add("MatMul", P, 2.0 * C.T)))
    if not kernel.smooth_at_zero:
        apart = graph.add("Not", graph.add("Less", u, graph.add("Mul", norms, 8.0 * EPS)))
        u = graph.add("Mul", u, graph.add("Cast", apart, to=_double()))
    return graph.add("Mul", u, kernel.scale)


def _coordinatewise(graph: _Graph, kernel: kernels.ProductMatern | kernels.Anova, P: str, C: Array) -> str:
    """Add nodes for a kernel that is a product over coordinates, and return the name of their output.

    The coordinates are processed one after another, because each coordinate needs an N x c matrix.
    """
    rate = math.sqrt(2.0 * kernel.scale)
    K = ""
    for j, column in enumerate(C.T):
        p = graph.add("Gather", P, [j], axis=1)
        t = graph.add("Mul", graph.add("Abs", graph.add("Sub", p, column[None, :])), rate)
        factor = _matern(graph, kernel.nu, t)
        if isinstance(kernel, kernels.Anova):
            factor = graph.add("Mul", graph.add("Add", factor, 1.0), 0.5)
        K = factor if j == 0 else graph.add("Mul", K, factor)
    return K


def _matern(graph: _Graph, nu: float, t: str) -> str:
    """Add nodes that compute the Matern function of t = distance / length scale, and return their output's name."""
    z = graph.add("Mul", t, math.sqrt(2.0 * nu))
    decay = graph.add("Exp", graph.add("Neg", z))
    if nu == 0.5:
        return decay
    polynomial = graph.add("Add", z, 1.0)
    if nu == 2.5:
        polynomial = graph.add("Add", polynomial, graph.add("Div", graph.add("Mul", z, z), 3.0))
    return graph.add("Mul", polynomial, decay)


def _double() -> int:
    from onnx import TensorProto

    return int(TensorProto.DOUBLE)
