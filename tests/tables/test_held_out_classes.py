"""Test hold_out and compare of hkrr.tables with classes. The scores are compared with those of scikit-learn."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hkrr
from hkrr.tables import HeldOutClassScores, TableClassifier, TableRegressor, compare, hold_out
from support.house_table import KIND, TARGET, kinds, table


def of_sizes(*sizes, seed=0):
    """Return a table with a target "y" whose classes "c0", "c1", ... have these numbers of rows, in random order."""
    labels = np.repeat([f"c{k}" for k in range(len(sizes))], sizes)
    return pd.DataFrame({"x": np.arange(len(labels)), "y": np.random.default_rng(seed).permutation(labels)})


SIZES = [(50, 50), (900, 100), (60, 30, 10), (7, 5, 3), (1000, *[2] * 100), (40, 3, 2, 1), (2,) * 30]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_the_classes_keep_their_shares(sizes, share):
    frame = of_sizes(*sizes)
    split = hold_out(frame, "y", share, task="auto")
    assert len(split.y_test) == round(share * len(frame))
    for k, size in enumerate(sizes):
        n_held_out = np.sum(split.y_test == f"c{k}")
        assert abs(n_held_out - len(split.y_test) * size / len(frame)) < 1
        assert n_held_out < size


@pytest.mark.parametrize("share", [0.2, 0.7, 0.9])
def test_every_class_is_in_the_training_rows(share):
    for sizes in SIZES:
        n = sum(sizes)
        if n - round(share * n) >= len(sizes):
            for seed in range(3):
                split = hold_out(of_sizes(*sizes), "y", share, seed, task="classification")
                assert len(np.unique(split.y_train)) == len(sizes)


def test_the_last_rows_are_held_out_only_if_there_are_no_others():
    split = hold_out(of_sizes(2, 2, 2), "y", 0.6, task="classification")  # only two training rows for three classes
    assert len(np.unique(split.y_train)) == len(split.y_train) == 2


def test_the_split_is_random_and_reproducible():
    frame = of_sizes(60, 30, 10)
    split, again, other = (hold_out(frame, "y", 0.2, seed, task="classification") for seed in (0, 0, 1))
    assert_array_equal(split.test.index, again.test.index)
    assert not np.array_equal(split.test.index, other.test.index)
    for part, labels in ((split.train, split.y_train), (split.test, split.y_test)):
        assert part.index.is_monotonic_increasing
        assert_array_equal(labels, frame["y"][part.index])
        assert "y" not in part
    assert sorted([*split.train.index, *split.test.index]) == list(range(100))
    assert len(hold_out(frame, "y", 0, task="classification").test) == 0


def test_every_row_and_every_class_is_held_out_equally_often():
    """Test the number of times that each row is held out in 500 random splits.

    Eleven classes have two rows each, and four rows are held out. They come from different classes in each split.
    """
    frame = of_sizes(*[2] * 11)
    counts, n_splits = np.zeros(len(frame)), 500
    for seed in range(n_splits):
        counts[hold_out(frame, "y", 0.2, seed, task="classification").test.index] += 1
    expected = n_splits * 4 / 22
    assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected))


def test_rows_without_a_label_are_dropped():
    frame = of_sizes(20, 20)
    frame.loc[[3, 5], "y"] = [None, "NA"]
    split = hold_out(frame, "y", task="auto")
    assert split.about == "dropped 2 rows without a target"
    assert len(split.y_train) + len(split.y_test) == 38
    assert set(split.y_train) == {"c0", "c1"}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a"] * 20, "the target 'y' is 'a' in every row; there is nothing to learn"),
        ([f"name {k}" for k in range(20)], "the target 'y' has 20 different values in 20 rows, too many for classes"),
        ([None] * 20, "the target 'y' is missing in every row; choose another target column"),
        (["a", *[None] * 19], "only 1 row has a target in the column 'y'"),
    ],
)
def test_unusable_labels_are_refused(labels, message):
    with pytest.raises(hkrr.TableError) as raised:
        hold_out(pd.DataFrame({"x": range(20), "y": labels}), "y", task="classification")
    assert message in str(raised.value)


def scaled_logistic(**options):
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, **options))


@pytest.fixture(scope="module")
def split():
    return hold_out(kinds(200), KIND, 0.3, seed=1, task="auto")


@pytest.fixture(scope="module")
def model(split):
    return TableClassifier(scaled_logistic(C=0.1)).fit(split.train, split.y_train)


def test_scores_are_those_of_scikit_learn(model, split):
    found = compare(model, split)
    assert isinstance(found, HeldOutClassScores)
    assert found.methods == ("hkrr", "logistic regression", "class frequencies")
    X, X_test = model.transform(split.train), model.transform(split.test)
    logistic = scaled_logistic().fit(X, split.y_train)
    frequencies = np.array([np.mean(split.y_train == label) for label in model.classes_])
    for k, probabilities in enumerate(
        (model.predict_proba(split.test), logistic.predict_proba(X_test), np.tile(frequencies, (60, 1)))
    ):
        predicted = model.classes_[np.argmax(probabilities, axis=1)]
        assert found.accuracy[k] == pytest.approx(accuracy_score(split.y_test, predicted), abs=1e-12)
        assert found.log_loss[k] == pytest.approx(log_loss(split.y_test, probabilities), abs=1e-6)
    expected = confusion_matrix(split.y_test, model.predict(split.test), labels=model.classes_)
    assert_array_equal(found.confusion, expected)
    assert found.classes == ("flat", "house", "villa")
    assert (found.n_train, found.n_test, found.seed, found.target) == (140, 60, 1, KIND)
    assert compare(model, split) == found


def test_the_intervals_contain_the_scores_and_shrink_with_the_number_of_rows(model, split):
    many = hold_out(kinds(4000, seed=5), KIND, 0.99, task="auto")
    same_training = dataclasses.replace(split, test=many.test, y_test=many.y_test)
    few, more = compare(model, split), compare(model, same_training)
    for score in ("accuracy", "log_loss"):
        widths = []
        for found in (few, more):
            low, value, high = (getattr(found, score + end) for end in ("_low", "", "_high"))
            assert all(a < b < c for a, b, c in zip(low, value, high, strict=True))
            widths.append(np.subtract(high, low))
        assert np.all(widths[1] < 0.3 * widths[0])  # 66 times the rows
    # The interval of an accuracy p is about four standard deviations of a binomial distribution.
    (p, *_), (low, *_), (high, *_) = more.accuracy, more.accuracy_low, more.accuracy_high
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(p * (1 - p) / more.n_test), rel=0.15)


def test_other_baselines_can_be_given(model, split):
    certain = np.zeros((60, 3))
    certain[np.arange(60), np.searchsorted(model.classes_, split.y_test)] = 1.0
    found = compare(model, split, {"oracle": certain, "wrong": certain[:, [1, 2, 0]]})
    assert found.methods == ("hkrr", "oracle", "wrong")
    assert (found.accuracy[1:], found.log_loss[1]) == ((1.0, 0.0), 0.0)
    assert found.log_loss[2] == pytest.approx(-np.log(1e-9))  # limited, although the probabilities are 0


@pytest.mark.parametrize("label", ["cabin", "igloo", "yurt"])  # the first, a middle and the last in the alphabet
def test_a_class_that_occurs_only_in_the_held_out_rows(model, split, label):
    """Test that rows of a class that is not in the training rows count as errors, with the smallest probability."""
    y_test = split.y_test.copy()
    y_test[:6] = label
    found = compare(model, dataclasses.replace(split, y_test=y_test))
    predicted, classes = model.predict(split.test), sorted({*model.classes_, label})
    assert found.classes == tuple(classes)
    assert_array_equal(found.confusion, confusion_matrix(y_test, predicted, labels=classes))
    assert found.accuracy[0] == pytest.approx(accuracy_score(y_test, predicted))
    rest = log_loss(y_test[6:], model.predict_proba(split.test)[6:])
    assert found.log_loss[0] == pytest.approx((54 * rest - 6 * np.log(1e-9)) / 60)
    assert all(value <= 0.9 for value in found.accuracy)


def test_models_and_splits_must_fit_together(model, split):
    numbers = hold_out(table(60), TARGET)
    regressor = TableRegressor(LinearRegression()).fit(numbers.train, numbers.y_train)
    with pytest.raises(ValueError, match="a TableRegressor cannot be compared on a split for a classification"):
        compare(regressor, split)
    with pytest.raises(ValueError, match="a TableClassifier cannot be compared on a split for a regression"):
        compare(model, numbers)
    codes = TableClassifier(scaled_logistic()).fit(split.train, np.searchsorted(model.classes_, split.y_train))
    with pytest.raises(ValueError, match="the classes of the model are not those of the training rows; fit the model"):
        compare(codes, split)


def scores(classes, confusion):
    each = {f"{name}{end}": (0.5, 0.25) for name in ("accuracy", "log_loss") for end in ("", "_low", "_high")}
    options = {"target": "y", "methods": ("hkrr", "logistic regression"), "n_train": 4000, "n_test": 1234, "seed": 0}
    return HeldOutClassScores(**each, **options, level=0.95, classes=classes, confusion=confusion)


def test_scores_as_text():
    lines = str(scores(("a", "long label of a class"), ((1000, 2), (3, 229)))).splitlines()
    assert lines == [
        "Scores on 1,234 held-out rows, with 95% confidence intervals",
        "                       accuracy                 log loss",
        "  hkrr                 0.500 (0.500 to 0.500)   0.500 (0.500 to 0.500)",
        "  logistic regression  0.250 (0.250 to 0.250)   0.250 (0.250 to 0.250)",
        "",
        "Number of held-out rows of each class (one line each), by predicted class:",
        "                          a long label..",
        "  a                   1,000            2",
        "  long label..            3          229",
    ]
    assert all(len(line) < 80 for line in lines)


def test_tables_of_many_classes_are_not_printed():
    for n_classes, is_printed in ((10, True), (11, False)):
        classes = tuple(f"{k}" for k in range(n_classes))
        text = str(scores(classes, ((0,) * n_classes,) * n_classes))
        assert ("by predicted class" in text) == is_printed
