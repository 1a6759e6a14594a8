"""The page of a benchmark, from cells made by hand."""

import numpy as np
import pytest

from hkrr.bench import METHODS, pictures, report
from hkrr.bench.results import best_peer, results, standing

# R2 and seconds of three methods on four problems; the last is a table, the third of "slow" failed.
R2 = {"hkrr": [0.9, 0.8, 0.7, 0.5], "slow": [0.8, 0.85, None, 0.4], "quick": [0.1, 0.2, 0.3, 0.6]}
SECONDS = {"hkrr": 2.0, "slow": 9.0, "quick": 1.0}
PROBLEMS = ["sines:m=100,D=9", "sines:m=200,D=9", "sines:m=400,D=9", "prices.csv"]


def cells():
    """Methods are called slow and quick; on the page, where each is described, xrfm and krr."""
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
    """The failed cell is last on its problem."""
    np.testing.assert_array_equal(results(cells()).ranks(), [[1, 2, 3], [2, 1, 3], [1, 3, 2], [2, 3, 1]])


def test_planted_problems_are_known_by_their_names():
    """Where no method learns a map, too."""
    assert results(cells()).planted() == PROBLEMS[:3]
    assert results([row for row in cells() if row["method"] == "quick"]).planted() == PROBLEMS[:3]


def test_failed_peers_are_counted():
    assert results(cells()).failed_peers().tolist() == [0, 0, 1, 0]


def test_best_peer():
    assert best_peer(results(cells())) == ["slow", "slow", "quick", "quick"]


def test_standing_counts_problems():
    """Least error on 1 and 3: 2 s there, against 9 s (4.5 s the last fit) of one best peer and 1 s of the other."""
    assert standing(results(cells())) == (4, 2, 2, 1, 1, 1)


def test_standing_without_a_peer_that_is_done():
    alone = [row for row in cells() if row["method"] != "quick" and row["problem"] == PROBLEMS[2]]
    assert standing(results(alone)) == (1,) * 6


@pytest.mark.parametrize(
    ("R2", "seconds", "expected"),
    [
        (0.8981, 8.0, (1, 0, 0, 0, 0, 0)),
        (0.8991, 8.0, (1, 0, 1, 1, 1, 0)),
        (0.9, 9.5, (1, 0, 1, 1, 0, 0)),
        (0.9, 10.5, (1, 0, 1, 0, 0, 0)),
        (0.91, 4.0, (1,) * 6),
    ],
    ids=["not reached", "reached to a hundredth", "hardly sooner", "later", "first, and sooner than the last fit"],
)
def test_errors_are_reached_to_a_hundredth_and_clearly_sooner_is_by_a_tenth(R2, seconds, expected):
    """The peer has an error of 0.1, in 10 s, 5 s of them the last fit."""
    rows = [
        {"problem": "sines", "method": "hkrr", "R2": R2, "seconds": seconds, "fit_seconds": seconds},
        {"problem": "sines", "method": "xrfm", "R2": 0.9, "seconds": 10.0, "fit_seconds": 5.0},
    ]
    assert standing(results(rows)) == expected


def test_losses_are_named_with_their_size():
    text = "\n".join(report.losses(results(cells())))
    assert "sines:m=200,D=9: slow by 0.0500" in text
    assert "prices.csv: quick by 0.1000" in text
    assert "sines:m=100" not in text
    assert "slow 3 of 4, quick 3 of 4" in text


def test_a_small_difference_is_not_shown_as_none():
    rows = cells()
    for row in rows:
        if row["problem"] == PROBLEMS[0]:
            row["R2"] = 0.9 if row["method"] == "hkrr" else 0.90001
    assert "slow by less than 0.0001" in "\n".join(report.losses(results(rows)))


def test_a_cell_that_was_not_run_is_a_failed_one():
    found = results(cells()[:-1])
    assert found.problems == PROBLEMS
    assert found.ranks()[-1].tolist() == [1, 2, 3]


def test_seeds_and_splits_of_one_problem_are_one():
    """By the mean; a method that failed on one of them has failed."""
    rows = [
        {"problem": f"{problem}{seed}", "method": method, "R2": R2, "error": "" if R2 else "broke"}
        for method, scores in {"a": [0.2, 0.6], "b": [0.9, ""]}.items()
        for problem in ("sines:m=60,seed=", "airfoil:split=")
        for seed, R2 in enumerate(scores)
    ]
    found = results(rows)
    assert found.problems == ["sines:m=60", "airfoil"]
    np.testing.assert_allclose(found.of("R2", "a"), 0.4)
    assert np.all(np.isnan(found.of("R2", "b")))


def described_cells():
    names = {"slow": "xrfm", "quick": "krr"}
    return [{**row, "method": names.get(row["method"], row["method"])} for row in cells()]


def test_the_page_and_its_pictures(tmp_path):
    (tmp_path / "risk-D.png").write_text("of an earlier run")
    drawn = pictures.draw(described_cells(), tmp_path)
    page = report.write(
        described_cells(),
        tmp_path,
        drawn,
        command="hkrr bench",
        budget="30 s each",
        methods=METHODS,
        about=["prices.csv: 3 rows with missing values left out"],
    ).read_text()
    names = [name for name, _ in drawn]
    assert names == ["accuracy-time-planted.png", "ranks-planted.png", "accuracy-time-tables.png", "risk-m.png"]
    assert {path.name for path in tmp_path.iterdir()} == {*names, "README.md"}
    for name in names:
        assert (tmp_path / name).stat().st_size > 5000
        assert f"]({name})" in page
    assert "sines:m=400,D=9, xrfm: ValueError: it broke" in page
    assert "Equal rules." in page
    assert "3 rows with missing values left out" in page
    assert "`xrfm`: xRFM of PyPI, all defaults" in page
    assert page.index("## Planted models") < page.index("## Tables")


def test_series_of_several_seeds_are_drawn():
    rows = [{**row, "problem": f"{row['problem']},seed={seed}"} for row in cells()[:9] for seed in (0, 1)]
    assert list(pictures.along(results(rows), "m")) == ["sines, D=9"]


def test_series_differ_in_one_option_alone():
    found = results(cells())
    assert pictures.along(found, "m") == {"sines, D=9": [(100, PROBLEMS[0]), (200, PROBLEMS[1]), (400, PROBLEMS[2])]}
    assert pictures.along(found, "D") == {}


def test_every_method_says_what_it_is():
    for method in METHODS.values():
        assert len(method.about) > 10
