"""The statistics, the figures and the page of a benchmark, made from synthetic results."""

import numpy as np

from hkrr.bench import METHODS, figures, report
from hkrr.bench.ranking import CLASSES, PLANTED, TABLES, best_peer, bootstrap_intervals, collect_results, groups

# R2 and seconds of three methods on four problems. The last problem is a table. The method "slow" failed on the third
# problem. Methods other than the estimators of this library are called peers.
R2 = {"hkrr": [0.9, 0.8, 0.7, 0.5], "slow": [0.8, 0.85, None, 0.4], "quick": [0.1, 0.2, 0.3, 0.6]}
SECONDS = {"hkrr": 2.0, "slow": 9.0, "quick": 1.0}
PROBLEMS = ["sines:m=100,D=9", "sines:m=200,D=9", "sines:m=400,D=9", "prices.csv"]
# Log loss and accuracy of three methods on three problems with classes. The frequencies of the classes have the log
# loss 0.6.
LOG_LOSS = {"hkrr_classifier": [0.2, 0.3, 0.001], "logistic": [0.4, 0.3, 0.002], "svc": [0.5, None, 0.5]}
ACCURACY = {"hkrr_classifier": [0.8, 0.9, 1.0], "logistic": [0.9, 0.8, 1.0], "svc": [0.7, None, 0.9]}


def cells():
    """Return one result for each problem and method, as in the CSV file."""
    return [
        {
            "problem": problem,
            "method": method,
            "task": "regression",
            "constant_error": 1.0,
            "R2": "" if R2[method][k] is None else R2[method][k],
            "seconds": "" if R2[method][k] is None else SECONDS[method],
            "fit_seconds": "" if R2[method][k] is None else SECONDS[method] / 2,
            "peak_mb": 0.0,
            "n_train": 100,
            "n_features": 9,
            "subspace_distance": 0.1 if method == "hkrr" and k < 3 else "",
            "error": "ValueError: it broke" if R2[method][k] is None else "",
        }
        for k, problem in enumerate(PROBLEMS)
        for method in R2
    ]


def class_cells():
    """Return one result for each classifier and each problem with classes."""
    return [
        {
            "problem": problem,
            "method": method,
            "task": "classification",
            "constant_error": 0.6,
            "log_loss": "" if loss is None else loss,
            "accuracy": "" if loss is None else ACCURACY[method][k],
            "calibration_error": "" if loss is None else 0.05,
            "seconds": "" if loss is None else 3.0,
            "n_train": 100,
            "n_features": 9,
            "error": "over the limit" if loss is None else "",
        }
        for method, losses in LOG_LOSS.items()
        for k, (problem, loss) in enumerate(zip(("a.csv", "b.csv", "sklearn:iris"), losses, strict=True))
    ]


def test_ranks():
    """The method with the highest R2 has rank 1, and a failed method is last."""
    np.testing.assert_array_equal(collect_results(cells()).ranks(), [[1, 2, 3], [2, 1, 3], [1, 3, 2], [2, 3, 1]])


def test_ranks_of_classifiers():
    """Classifiers are ranked by log loss, and in a second table by accuracy. A failed classifier is last."""
    found = groups(class_cells())[CLASSES]
    np.testing.assert_array_equal(found.ranks(), [[1, 2, 3], [1.5, 1.5, 3], [1, 2, 3]])
    np.testing.assert_array_equal(found.ranks("accuracy"), [[2, 1, 3], [1, 2, 3], [1.5, 1.5, 3]])
    assert [line["method"] for line in report.summary(found)] == ["hkrr_classifier", "logistic", "svc"]
    assert [line["mean rank"][:4] for line in report.accuracy_summary(found)] == ["1.50", "1.50", "3.00"]


def test_problems_are_grouped():
    """Planted models are recognized by their names, and classes by the task."""
    found = groups([*cells(), *class_cells()])
    assert {name: part.problems for name, part in found.items()} == {
        PLANTED: PROBLEMS[:3],
        TABLES: PROBLEMS[3:],
        CLASSES: ["a.csv", "b.csv", "sklearn:iris"],
    }
    assert found[CLASSES].methods == list(LOG_LOSS)
    assert found[TABLES].methods == list(R2)


def test_relative_errors():
    """The error is divided by the lowest error. A failed method has the error of the constant prediction.

    Log losses below 0.01 count as 0.01.
    """
    found = collect_results(cells()).relative_errors()
    np.testing.assert_allclose(found[0], np.sqrt([1.0, 2.0, 9.0]))
    np.testing.assert_allclose(found[2], [1.0, 1.0 / np.sqrt(0.3), np.sqrt(0.7 / 0.3)])
    found = groups(class_cells())[CLASSES].relative_errors()
    np.testing.assert_allclose(found, [[1.0, 2.0, 2.5], [1.0, 1.0, 2.0], [1.0, 1.0, 50.0]])


def test_geometric_means_and_intervals_are_in_the_summary():
    """The bootstrap samples have a fixed seed. The mean of each sample is within the range of the values."""
    found = groups(class_cells())[CLASSES]
    lines = {line["method"]: line for line in report.summary(found)}
    assert report.summary(found) == report.summary(found)
    assert lines["hkrr_classifier"]["relative log loss"] == "1.000 [1.00, 1.00]"
    assert lines["svc"]["relative log loss"].startswith(f"{(2.5 * 2.0 * 50.0) ** (1 / 3):.3f} [2.")
    assert lines["svc"]["failed"] == "1"


def test_bootstrap_intervals():
    """The intervals of normal numbers have the length that the normal distribution predicts."""
    values = np.random.default_rng(0).standard_normal((400, 2))
    low, high = bootstrap_intervals(values)
    np.testing.assert_array_equal((low, high), bootstrap_intervals(values))
    np.testing.assert_allclose(high - low, 2 * 1.96 * values.std(axis=0) / 20, rtol=0.1)
    np.testing.assert_allclose((low + high) / 2, values.mean(axis=0), atol=0.01)
    assert np.all(np.isnan(bootstrap_intervals(values[:2])))


def test_best_peer():
    assert best_peer(collect_results(cells())) == ["slow", "slow", "quick", "quick"]
    assert best_peer(groups(class_cells())[CLASSES]) == ["logistic"] * 3
    alone = [row for row in cells() if row["method"] != "quick" and row["problem"] == PROBLEMS[2]]
    assert best_peer(collect_results(alone)) == [None]


def test_the_library_is_compared_with_the_best_peer():
    lines = report.beside_best(collect_results(cells()))
    first = {"problem": PROBLEMS[0], "m": "100", "D": "9", "hkrr": "0.9000 (2.0 s)", "best peer": "slow 0.8000 (9.0 s)"}
    assert lines[0] == first


def test_a_missing_cell_counts_as_failed():
    found = collect_results(cells()[:-1])
    assert found.problems == PROBLEMS
    assert found.ranks()[-1].tolist() == [1, 2, 3]


def test_seeds_and_splits_of_a_problem_are_averaged():
    """Results of different seeds or splits are averaged. A method that failed on one seed or split counts as failed."""
    rows = [
        {"problem": f"{problem}{seed}", "method": method, "R2": R2, "error": "" if R2 else "broke"}
        for method, scores in {"a": [0.2, 0.6], "b": [0.9, ""]}.items()
        for problem in ("sines:m=60,seed=", "airfoil:split=")
        for seed, R2 in enumerate(scores)
    ]
    found = collect_results(rows)
    assert found.problems == ["sines:m=60", "airfoil"]
    np.testing.assert_allclose(found.values("R2", "a"), 0.4)
    assert np.all(np.isnan(found.values("R2", "b")))


def described_cells():
    """Return the synthetic results under the names of real methods, which have descriptions."""
    names = {"slow": "xrfm", "quick": "krr"}
    return [{**row, "method": names.get(row["method"], row["method"])} for row in [*cells(), *class_cells()]]


def test_the_page_and_its_figures(tmp_path):
    (tmp_path / "risk-D.png").write_text("from an earlier run")
    drawn = figures.draw(described_cells(), tmp_path)
    page = report.write(
        described_cells(),
        tmp_path,
        drawn,
        command="hkrr bench",
        budget="30 s each",
        methods=METHODS,
        about=["prices.csv: 3 rows with missing values dropped"],
        missing=["catboost"],
    ).read_text()
    names = [name for name, _ in drawn]
    assert names == [
        *("accuracy-time-planted.png", "ranks-planted.png", "accuracy-time-tables.png"),
        *("accuracy-time-classes.png", "ranks-classes.png", "risk-m.png"),
    ]
    assert {path.name for path in tmp_path.iterdir()} == {*names, "README.md"}
    for name in names:
        assert (tmp_path / name).stat().st_size > 5000
        assert f"]({name})" in page
    assert "sines:m=400,D=9, xrfm: ValueError: it broke" in page
    assert "b.csv, svc: over the limit" in page
    assert "Equal rules." in page
    assert "3 rows with missing values dropped" in page
    assert "hkrr was developed on the tables of this page" in page
    assert "Pretrained" in page
    assert "Not run because a package is not installed: catboost." in page
    assert "`xrfm`: the xRFM package with default parameters" in page
    assert page.index("## Planted models") < page.index("## Tables") < page.index("## Classes")


def test_figures_of_all_methods(tmp_path):
    """Every figure can be drawn with all methods that `hkrr bench` knows."""
    rows = [
        {"problem": problem, "method": method, "R2": 0.01 * (k + 1), "seconds": 1.0 + k}
        for problem in (*PROBLEMS, "sines:m=100,D=20", "sines:m=100,D=50", "sales.csv")
        for k, method in enumerate(METHODS)
    ]
    assert len(figures.draw(rows, tmp_path)) == len(list(tmp_path.iterdir())) == 6


def test_tied_methods_are_all_first():
    """All methods that share the highest R2 on a problem count as first. If all methods failed, no method is first."""
    scores = {"a": [0.5, ""], "b": [0.5, ""], "c": [0.5, ""], "d": [0.4, ""]}
    rows = [
        {"problem": problem, "method": method, "R2": R2}
        for method, values in scores.items()
        for problem, R2 in zip(PROBLEMS[:2], values, strict=True)
    ]
    first = {line["method"]: line["first"] for line in report.summary(collect_results(rows))}
    assert first == {"a": "1 of 2", "b": "1 of 2", "c": "1 of 2", "d": "0 of 2"}


def test_series_with_several_seeds():
    rows = [{**row, "problem": f"{row['problem']},seed={seed}"} for row in cells()[:9] for seed in (0, 1)]
    assert list(figures.problem_series(collect_results(rows), "m")) == ["sines, D=9"]


def test_the_problems_of_a_series_differ_in_one_option():
    found = collect_results(cells())
    assert figures.problem_series(found, "m") == {
        "sines, D=9": [(100, PROBLEMS[0]), (200, PROBLEMS[1]), (400, PROBLEMS[2])]
    }
    assert figures.problem_series(found, "D") == {}


def test_every_method_has_a_description():
    for method in METHODS.values():
        assert len(method.about) > 10
