"""Test that forged files with a correct checksum are refused, or give models that can predict."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import hkrr
from hkrr._storage.safetensors_format import as_json, checksum, pack
from hkrr.saving.schemas import SCHEMAS
from support.hostile_files import MODELS, changed, data_of, load, refused, refused_or_valid, with_value
from support.models_to_save import CLASSES, apply, copied, fitted, new_rows, rows, unfitted
from support.mutated_model_files import JUNK, MUTATIONS, nodes, parts, with_table


def test_the_helpers_without_changes_reproduce_the_file():
    for name in MODELS:
        assert_array_equal(apply(load(changed(name)), new_rows()), apply(fitted(name), new_rows()))


@pytest.mark.parametrize("name", [*CLASSES, "polynomials"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(name, bad):
    header, arrays = parts(data_of(name))
    for key, array in arrays.items():
        if array.dtype == np.float64:
            changed_array = array.copy()
            changed_array.flat[-1] = bad
            refused(pack(header, {**arrays, key: changed_array}), "contains NaN or infinity")


@pytest.mark.parametrize("name", [*CLASSES, "polynomials"])
def test_shapes_and_dtypes_that_disagree_are_refused(name):
    header, arrays = parts(data_of(name))
    for key, array in arrays.items():
        for other in (array[:-1], array[None], array.astype(np.int64 if array.dtype.kind == "f" else float), array[:0]):
            fewer = name == "HyperRBFNetwork" and key == "components_" and other.shape == (1, 3)
            free = key.endswith(("interval_scores_", "spectrum_"))  # these vectors may have any length
            fewer |= free and other.dtype.kind == "f" and other.shape == (len(array) - 1,)
            if fewer or (key in ("link_._y", "classes_") and other.shape == array.shape):  # still a valid model
                assert refused_or_valid(pack(header, {**arrays, key: other}))
            else:
                refused(pack(header, {**arrays, key: other}))


def test_an_empty_tensor_with_huge_axes_is_refused():
    """Test that a tensor of shape (0, 2^47, 2^47) is refused.

    It has zero bytes, as every empty tensor, but no NumPy array can have this shape.
    """
    header, arrays = parts(data_of("SIR"))
    data = pack(header, {**arrays, "eigenvalues_": np.zeros(0)})

    def change(table):
        table["eigenvalues_"]["shape"] = [0, 2**47, 2**47]
        inner = json.loads(table["__metadata__"]["hkrr"])
        inner["tensors"]["eigenvalues_"]["shape"] = [0, 2**47, 2**47]
        inner["checksum"] = checksum(inner, [arrays["components_"].tobytes()])
        table["__metadata__"]["hkrr"] = as_json(inner)

    refused(with_table(data, change), "a tensor does not have the number of bytes that its shape and type require")


def test_swapped_tensors_are_refused():
    header, arrays = parts(data_of("HyperKernelRidge"))
    swapped = {**arrays, "map_": arrays["centers_"], "centers_": arrays["map_"]}
    refused(pack(header, swapped), "but must have the shape")


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(MODELS),
    kind=st.sampled_from(["header", "array", "table", "bytes"]),
    seed=st.integers(0, 2**32),
)
def test_mutated_files_are_refused_or_valid(name, kind, seed):
    refused_or_valid(MUTATIONS[kind](data_of(name), Random(seed)))


ENSEMBLE = pytest.param("HyperKernelEnsemble", marks=pytest.mark.thorough)  # the table path_ has hundreds of values


@pytest.mark.parametrize("name", ["HyperKernelRidgeCV", ENSEMBLE, "polynomials", "ReLUNetwork"])
def test_junk_in_any_place_is_refused_or_valid(name):
    """Test that the file is refused or valid after one value of the header was replaced by a random invalid value."""
    random = Random(0)
    n_places = len(nodes(parts(data_of(name))[0]))
    outcomes = []
    for i in range(n_places):
        header, arrays = parts(data_of(name))
        holder, key = nodes(header)[i]
        holder[key] = random.choice(JUNK)
        outcomes.append(refused_or_valid(pack(header, arrays)))
    assert set(outcomes) == {True, False}


def test_a_newer_format_is_refused_with_the_remedy():
    message = rf"hkrr 0\.9 in format 2, but hkrr {hkrr.__version__} reads format 1 only; install a newer hkrr"
    refused(changed("SIR", format=2, library="0.9", news={}), message)
    refused(changed("SIR", format="1"), "has no format version")
    refused(changed("SIR", format=0), "has no format version")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["class"], "Ridge", "class 'Ridge' is unknown"),
        (["class"], "KNeighborsRegressor", "is unknown"),
        (["class"], ["SIR"], "is unknown"),
        (["news"], 1, "the field 'news' of its metadata is missing or unknown"),
        (["parameters", "news"], 1, "'news' is not one of the known parameters"),
        (["attributes", "news_"], 1, "'news_' is not one of the known attributes"),
        (["attributes", "kernel_", "object", "class"], "Wavelet", "unknown class 'Wavelet'"),
        (["attributes", "kernel_", "object", "news"], 1, "invalid Gaussian"),
        (["attributes", "kernel_", "object", "gamma"], -1.0, "gamma must be a positive finite number"),
        (["attributes", "kernel_", "object", "gamma"], "1", "invalid Gaussian"),
        (["attributes", "kernel_", "object", "gamma"], {"tensor": "x_offset_"}, "an invalid value"),
        (["attributes", "kernel_"], {"object": {"class": "LBFGS"}}, "kernel_ is not a kernel"),
        (["attributes", "kernel_"], {"pickle": ""}, "unknown type 'pickle'"),
        (["attributes", "x_offset_"], {"tensor": "map_"}, "the same tensor twice"),
        (["attributes", "x_offset_"], {"tensor": "nowhere"}, "a missing tensor"),
        (["attributes", "x_offset_"], None, "x_offset_ is not an array of floats"),
        (["attributes", "n_features_in_"], 4, "but must have the shape"),
        (["attributes", "n_features_in_"], 10**30, "an invalid value"),
        (["attributes", "intercept_"], "0", "intercept_ is not a float"),
        (["attributes", "truncation_"], -1.0, "truncation_ is below 0"),
        (["attributes", "gamma_"], {"float": "nan"}, "gamma_ is not positive"),
        (["attributes", "map_shape_"], "round", "map_shape_ is not one of"),
        (["attributes", "path_"], {"dict": [["a", [1]], ["b", []]]}, "columns of different lengths"),
        (["parameters", "truncate"], "yes", "truncate must be True or False"),
        (["parameters", "n_jobs"], 0, "n_jobs must be"),
        (["parameters", "block_size"], -1, "block_size"),
        (["parameters", "device"], "cuda:0; rm", "not a PyTorch device"),
        (["parameters", "kernel"], {"texts": ["x" * 4000, *["y"] * 1000]}, "an invalid value"),
        (["feature_names"], ["a", "b"], "feature_names_in_ has the shape"),
        (["feature_names"], [["a"], ["b"], ["c"]], "feature names are not strings"),
    ],
)
def test_unknown_and_invalid_values_are_refused(place, value, message):
    refused(with_value("HyperKernelRidgeCV", place, value), message)


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("polynomials", ["parameters"], {"n_cells": 2, "degree": 10**15}, "one coefficient for each monomial"),
        ("polynomials", ["parameters"], {"n_cells": 10**15, "degree": 1}, "n_cells=1000000000000000 is too large"),
        ("polynomials", ["parameters"], {"n_cells": 1, "degree": 1}, "the keys of cells_ must be"),
        ("polynomials", ["attributes", "range_"], {"tuple": [1.0, 0.0]}, "the maximum in range_ is below the minimum"),
        ("RCLS", ["parameters", "n_neighbors"], 1000, "exceeds the number of training rows"),
        ("RCLS", ["class"], "MLPRegressor", "is unknown"),
    ],
)
def test_links_that_cannot_predict_are_refused(name, place, value, message):
    refused(with_value(name, ["attributes", "link_", "model", *place], value), message)


MEMBER = ["attributes", "members_", 1]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["attributes", "members_"], None, "not a list of models"),
        (["attributes", "members_"], {"model": {}}, "not a list of models"),
        (["attributes", "members_"], [], "weights_ has 2 entries, but members_ has 0"),
        (MEMBER, [], "its content is not a model"),
        ([*MEMBER, "class"], "HyperKernelRidge", "class 'HyperKernelRidge' is unknown"),
        ([*MEMBER, "class"], "HyperKernelEnsemble", "class 'HyperKernelEnsemble' is unknown"),
        ([*MEMBER, "parameters", "truncate"], "yes", "truncate must be True or False"),
        ([*MEMBER, "attributes", "centers_"], {"tensor": "members_.0.centers_"}, "the same tensor twice"),
        ([*MEMBER, "attributes", "map_shape_"], "round", "map_shape_ is not one of"),
        (["attributes", "n_features_in_"], 4, r"members_\[0\] was fitted with 3 columns, but the model with 4"),
        (["attributes", "truncation_"], -1.0, "truncation_ is below 0"),
        (["attributes", "path_"], {"dict": [["a", [1]], ["b", []]]}, "columns of different lengths"),
        (["parameters", "n_jobs"], 0, "n_jobs must be"),
        (["parameters", "device"], "cuda:0; rm", "not a PyTorch device"),
    ],
)
def test_invalid_ensembles_are_refused(place, value, message):
    refused(with_value("HyperKernelEnsemble", place, value), message)


@pytest.mark.parametrize("weights", [[0.7, -0.2], [1e308, 1e308]])
def test_ensembles_with_invalid_weights_are_refused(weights):
    header, arrays = parts(data_of("HyperKernelEnsemble"))
    refused(pack(header, {**arrays, "weights_": np.array(weights)}), "weights_ contains negative numbers, or numbers")


@pytest.mark.parametrize(("member", "attribute"), [(0, "centers_"), (1, "map_shape_")])
def test_members_without_a_required_attribute_are_refused(member, attribute):
    """Test that the first member of an ensemble must have centers, and that every member must have `map_shape_`.

    Other members can lack centers: they then share those of the first member.
    """
    header, arrays = parts(data_of("HyperKernelEnsemble"))
    del header["attributes"]["members_"][member]["attributes"][attribute]
    refused(pack(header, arrays), f"lacks the attribute {attribute}")


def test_members_that_do_not_fit_together_are_refused(tmp_path):
    X, y = rows()
    model = copied("HyperKernelEnsemble")
    for other, message in (
        (unfitted("HyperKernelRidgeCV").fit(X[:, :2], y), r"members_\[1\] was fitted with 2 columns"),
        (unfitted("HyperKernelRidgeCV").fit(X, np.column_stack([y, y])), "have different numbers of targets"),
        (fitted("HyperKernelRidge"), r"members_\[1\] is not one of HyperKernelRidgeCV"),
    ):
        model.members_[1] = other
        with pytest.raises(ValueError, match=f"cannot be saved: .*{message}"):
            hkrr.save(model, tmp_path / "model")
    model.members_ = tuple(fitted("HyperKernelEnsemble").members_)
    with pytest.raises(ValueError, match="cannot be saved: members_ is not a list"):
        hkrr.save(model, tmp_path / "model")


SCORES = ["attributes", "scores_", "model"]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (
            ["attributes", "classes_"],
            {"texts": ["a", "b", "c"]},
            r"offsets_ has the shape \(2,\), but must have .*\(3,\)",
        ),
        (["attributes", "classes_"], {"texts": ["b", "a"]}, "two distinct labels in sorted order"),
        (["attributes", "refined_"], 1, "refined_ is neither True nor False"),
        (["attributes", "refined_"], True, "refined_ is True, but scores_ has 2 members"),
        (["attributes", "softness_"], 0.2, "it has the attribute softness_, but refined_ is False"),
        (["attributes", "softness_"], 1e-300, "softness_ is not between"),
        (["attributes", "held_out_accuracy_"], 1.5, "held_out_accuracy_ is not between 0 and 1"),
        (["attributes", "held_out_log_loss_"], -0.1, "held_out_log_loss_ is not between 0 and inf"),
        (["attributes", "held_out_log_loss_"], {"float": "inf"}, "held_out_log_loss_ contains NaN or infinity"),
        (["attributes", "n_features_in_"], 4, "scores_ was fitted with 3 columns, but the model with 4"),
        (["attributes", "regressor_"], 1, "is not one of the known parameters of HyperKernelClassifier"),
        (["parameters", "device"], "cuda:0; rm", "not a PyTorch device"),
        (["parameters", "loss"], "squared", "'loss' is not one of the known parameters"),
        ([*SCORES, "class"], "HyperKernelEnsemble", "class 'HyperKernelEnsemble' is unknown"),
        ([*SCORES, "attributes", "path_"], None, "path_ is not a table"),
        ([*SCORES, "attributes", "n_features_in_"], 4, r"members_\[0\] was fitted with 3 columns"),
        ([*SCORES, "parameters", "n_jobs"], 0, "n_jobs must be"),
    ],
)
def test_invalid_classifiers_are_refused(place, value, message):
    refused(with_value("HyperKernelClassifier", place, value), message)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("class_count_", [20, 0], "class_count_ contains numbers below 1"),
        ("class_count_", [20, 5, 5], "class_count_ has the shape"),
        ("class_count_", [20.0, 10.0], "class_count_ is not an array of numbers of a valid type"),
        ("class_prior_", [0.0, 1.0], "class_prior_ is not positive"),
        ("class_prior_", [0.5, 1.5], "class_prior_ contains numbers above 1"),
        ("offsets_", [0.0, 0.0, 0.0], "offsets_ has the shape"),
        ("offsets_", [0.0, np.nan], "offsets_ contains NaN or infinity"),
        ("scores_.weights_", [], "weights_ has the shape"),
        ("scores_.weights_", [1.0] * 99, "weights_ has 99 entries, but members_ has"),
    ],
)
def test_classifiers_with_invalid_arrays_are_refused(name, value, message):
    header, arrays = parts(data_of("HyperKernelClassifier"))
    refused(pack(header, {**arrays, name: np.array(value)}), message)


def test_classifiers_with_negative_weights_are_refused():
    header, arrays = parts(data_of("HyperKernelClassifier"))
    refused(pack(header, {**arrays, "scores_.weights_": -arrays["scores_.weights_"]}), "contains negative numbers")


def test_scores_with_another_number_of_targets_are_refused(tmp_path):
    X, y = rows()
    model = copied("HyperKernelClassifier")
    model.scores_ = unfitted("HyperKernelClassifier").fit(X, np.digitize(y, [-0.5, 0.5])).scores_
    with pytest.raises(ValueError, match="scores_ must have 2 targets, because there are 2 classes"):
        hkrr.save(model, tmp_path / "model")


def test_the_scores_of_a_classifier_are_not_a_model_of_their_own(tmp_path):
    scores = fitted("HyperKernelClassifier").scores_
    with pytest.raises(TypeError, match=r"hkrr\.save supports .*; got a ClassScores"):
        hkrr.save(scores, tmp_path / "model")
    header, arrays = parts(data_of("HyperKernelClassifier"))
    inner = header["attributes"]["scores_"]["model"]
    own = {key.removeprefix("scores_."): array for key, array in arrays.items() if key.startswith("scores_.")}
    refused(pack({**header, **inner}, own), "class 'ClassScores' is unknown")


FORMER = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("logistic", ["attributes", "softness_"], 0.2, "softness_ must be None if loss is 'logistic'"),
        ("squared", ["attributes", "softness_"], None, "softness_ must be None if loss is 'logistic'"),
        ("squared", ["attributes", "softness_"], 1e-300, "softness_ is not between 0.01 and 20"),
        ("squared", ["attributes", "held_out_accuracy_"], 0.5, "it has some of the attributes class_count_"),
        ("squared", ["attributes", "refined_"], True, "'refined_' is not one of the known attributes"),
        ("squared", ["parameters", "loss"], "hinge", "loss must be"),
        ("squared", ["parameters", "callbacks"], None, "'callbacks' is not one of the known parameters"),
        ("squared", ["parameters", "n_jobs"], 0, "n_jobs must be"),
        ("squared", ["attributes", "classes_"], {"texts": ["a", "b", "c"]}, "dual_coef_ must have the shape"),
        ("squared", ["attributes", "n_features_in_"], 4, "but must have the shape"),
        ("squared", ["attributes", "regressor_"], None, "its content is not a model"),
        ("squared", ["attributes", "regressor_", "model", "class"], "HyperKernelRidge", "is unknown"),
        ("logistic", ["attributes", "nu_"], -1.0, "nu_ is not positive and finite"),
    ],
)
def test_invalid_classifiers_of_version_0_1_are_refused(name, place, value, message):
    header, arrays = parts((FORMER / f"format1-{name}.safetensors").read_bytes())
    holder = header
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    refused(pack(header, arrays), message)


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(["logistic", "squared"]), kind=st.sampled_from(["header", "array"]), seed=st.integers(0, 2**32)
)
def test_mutated_classifiers_of_version_0_1_are_refused_or_valid(name, kind, seed):
    refused_or_valid(MUTATIONS[kind]((FORMER / f"format1-{name}.safetensors").read_bytes(), Random(seed)))


def test_missing_parts_are_refused_and_missing_parameters_are_defaults():
    for name in MODELS:
        header, arrays = parts(data_of(name))
        for attribute in header["attributes"]:
            less = {key: value for key, value in header["attributes"].items() if key != attribute}
            used = {key: array for key, array in arrays.items() if key.split(".")[0] != attribute}
            optional = attribute in SCHEMAS[header["class"]].optional
            # For each of the following two groups, a model must have either all attributes or none.
            optional &= attribute not in ("prior_variance_", "noise_variance_")
            optional &= attribute not in ("class_count_", "class_prior_", "held_out_log_loss_", "held_out_accuracy_")
            assert refused_or_valid(pack({**header, "attributes": less}, used)) == optional
    header, arrays = parts(data_of("HyperKernelRidge"))
    del header["parameters"]["n_init"]
    assert load(pack(header, arrays)).n_init == 10


def test_unused_tensors_are_refused():
    header, arrays = parts(data_of("SIR"))
    refused(pack(header, {**arrays, "extra": np.zeros(3)}), "an unused tensor, 'extra'")
