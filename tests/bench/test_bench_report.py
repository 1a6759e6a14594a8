"""The statistics, the figures and the page of a benchmark, made from synthetic results."""

import numpy as np
import pytest

from hkrr.bench import METHODS, figures, report
from hkrr.bench.ranking import best_peer, collect_results, standing

# R2 and seconds of three methods on four problems. The last problem is a table. The method "slow" failed on the third
# problem. Methods other than hkrr and its variants are called peers.
R2 = {"hkrr": [0.9, 0.8, 0.7, 0.5], "slow": [0.8, 0.85, None, 0.4], "quick": [0.1, 0.2, 0.3, 0.6]}
SECONDS = {"hkrr": 2.0, "slow": 9.0, "quick": 1.0}
PROBLEMS = ["sines:m=100,D=9", "sines:m=200,D=9", "sines:m=400,D=9", "prices.csv"]


def cells():
    """Return one result for each problem and method, as in the CSV file."""
    return [
        {
            "problem": problem,
            "method": method,
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


def test_ranks():
    """The method with the highest R2 has rank 1, and a failed method is last."""
    np.testing.assert_array_equal(collect_results(cells()).ranks(), [[1, 2, 3], [2, 1, 3], [1, 3, 2], [2, 3, 1]])


def test_planted_problems_are_recognized_by_name():
    """Planted models are recognized by their names, even if no method learns a map."""
    assert collect_results(cells()).planted() == PROBLEMS[:3]
    assert collect_results([row for row in cells() if row["method"] == "quick"]).planted() == PROBLEMS[:3]


def test_failed_peers_are_counted():
    assert collect_results(cells()).failed_peers().tolist() == [0, 0, 1, 0]


def test_best_peer():
    assert best_peer(collect_results(cells())) == ["slow", "slow", "quick", "quick"]


def test_standing_counts_problems():
    """hkrr has the lowest error on two of four problems, and is faster than the best peer on one of these two.

    hkrr takes 2 s on each problem, and the best peers on these two problems take 9 s and 1 s. The six expected numbers
    are the fields of `Standing`: n, first, reached, sooner, clearly_sooner and sooner_than_fit.
    """
    assert standing(collect_results(cells())) == (4, 2, 2, 1, 1, 1)


def test_standing_if_all_peers_failed():
    alone = [row for row in cells() if row["method"] != "quick" and row["problem"] == PROBLEMS[2]]
    assert standing(collect_results(alone)) == (1,) * 6


@pytest.mark.parametrize(
    ("R2", "seconds", "expected"),
    [
        (0.8981, 8.0, (1, 0, 0, 0, 0, 0)),
        (0.8991, 8.0, (1, 0, 1, 1, 1, 0)),
        (0.9, 9.5, (1, 0, 1, 1, 0, 0)),
        (0.9, 10.5, (1, 0, 1, 0, 0, 0)),
        (0.91, 4.0, (1,) * 6),
    ],
    ids=["larger error", "equal up to 1%", "slightly faster", "slower", "lower error, faster than the last fit"],
)
def test_tolerances_of_the_standing(R2, seconds, expected):
    """hkrr is compared with a peer that has an error of 0.1 and takes 10 s, including 5 s for its last fit.

    The expected numbers are the fields of `Standing`: n, first, reached, sooner, clearly_sooner and sooner_than_fit. An
    error that is at most 1% larger counts as reached.
    """
    rows = [
        {"problem": "sines", "method": "hkrr", "R2": R2, "seconds": seconds, "fit_seconds": seconds},
        {"problem": "sines", "method": "xrfm", "R2": 0.9, "seconds": 10.0, "fit_seconds": 5.0},
    ]
    assert standing(collect_results(rows)) == expected


def test_losses_are_listed_with_their_size():
    text = "\n".join(report.losses(collect_results(cells())))
    assert "sines:m=200,D=9: slow by 0.0500" in text
    assert "prices.csv: quick by 0.1000" in text
    assert "sines:m=100" not in text
    assert "slow 3 of 4, quick 3 of 4" in text


def test_a_small_difference_is_not_shown_as_zero():
    rows = cells()
    for row in rows:
        if row["problem"] == PROBLEMS[0]:
            row["R2"] = 0.9 if row["method"] == "hkrr" else 0.90001
    assert "slow by less than 0.0001" in "\n".join(report.losses(collect_results(rows)))


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
    return [{**row, "method": names.get(row["method"], row["method"])} for row in cells()]


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
    ).read_text()
    names = [name for name, _ in drawn]
    assert names == ["accuracy-time-planted.png", "ranks-planted.png", "accuracy-time-tables.png", "risk-m.png"]
    assert {path.name for path in tmp_path.iterdir()} == {*names, "README.md"}
    for name in names:
        assert (tmp_path / name).stat().st_size > 5000
        assert f"]({name})" in page
    assert "sines:m=400,D=9, xrfm: ValueError: it broke" in page
    assert "Equal rules." in page
    assert "3 rows with missing values dropped" in page
    assert "`xrfm`: the xRFM package with default parameters" in page
    assert page.index("## Planted models") < page.index("## Tables")


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
