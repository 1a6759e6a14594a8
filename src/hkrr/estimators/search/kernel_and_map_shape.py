"""Search over kernels and shapes of the map, by the same score that selects the number of directions.

Real tables rarely follow a multi-index model. Their columns have individual meanings. For such tables, a non-smooth
kernel (such as Laplace) with one scale per column (a diagonal map) often fits better than a few directions. The
criterion is therefore minimized for several kernels and for maps of three shapes:

- Multiples of the identity, which is plain kernel ridge regression.
- Diagonal maps. For each kernel, one run starts from the result of plain kernel ridge regression, and one run starts
  with all scales set by the median heuristic. All runs are short. The best maps then get a long run.
- Full maps, for radial kernels only. Some start from the directions found with the Gaussian kernel. The others are
  square maps that start from the best diagonal maps. Each square map is then truncated to the rank with the lowest
  score.

The criterion is the mean over groups of a few hundred rows (`hkrr.criteria.Grouped`). The best candidates of each kind
by score and the best candidates by leave-one-out error become finalists. The finalists are improved on more and larger
groups, or on all rows if there are at most 1,500 rows. The finalist with the lowest score, extrapolated to all rows,
wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import joblib
import numpy as np

from hkrr._base.threads import single_threaded_blas
from hkrr._maps import Diagonal, Full, Scaled, principal_form, square_map_is_affordable
from hkrr.criteria import Criterion, Grouped, LeaveOneOut
from hkrr.estimators.search.candidates import FIRST_LAMBDA, LONG, SHORT, Candidate, Origin, improve, optimism, score
from hkrr.estimators.search.progress import describe_runs
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.exceptions import FitError
from hkrr.kernels import KERNELS, Kernel
from hkrr.rows import InMemoryRows
from hkrr.solvers.initialization import median_sample, median_scale

# Radial kernels are tried with identity, diagonal and full maps. Product kernels are not rotation invariant: they are
# tried with identity and diagonal maps only.
RADIAL = ("gaussian", "matern52", "matern32", "laplace")
PRODUCT = ("product_matern32", "product_laplace", "anova")
# The time to compute a product kernel is proportional to the number of columns. With more than _WIDE columns, only the
# cheapest product kernel is tried, and the number of groups is reduced.
_WIDE, _CHEAPEST = 50, ("product_laplace",)
# Number of rows of a group and maximum number of groups: for the search, and for the finalists.
_GROUP_ROWS, _GROUPS = 400, 6
_LARGE_GROUP_ROWS, _LARGE_GROUPS = 600, 8
# Maximum number of rows for which the finalists use all rows as a single group.
_ONE_GROUP_ROWS = 1_500
# Numbers of candidates that continue from half of the groups to all groups: plain kernel ridge regression, and diagonal
# maps.
_PLAINS, _DIAGONALS = 1, 4
# Number of diagonal maps from which square maps start.
_SQUARES = 2
# Number of candidates that get long runs.
_LONG_RUNS = 2
# A candidate is dropped if its score is above the best score by more than this number of nats per row and target. A
# distance of 0.05 corresponds to about 10% more unexplained variance.
_HOPELESS = 0.05
# Maximum number of finalists, and number of finalists selected by leave-one-out error.
_FINALISTS, _FINALISTS_BY_ERROR = 9, 3
# Initial value of nu of a run whose scales are set by the median heuristic.
_MEDIAN_NOISE = 0.1
# Limits for the starting point of a run that continues from the result of another run: smallest nu, largest nu, and
# largest factor by which a scale may be above or below the scale of the median heuristic. If nu is close to 0 or very
# large, the gradient with respect to nu vanishes, and nu would not change any more. The same holds for the scale of a
# column that became almost 0 or infinite on a small sample.
_LEAST_NOISE, _MOST_NOISE, _FARTHEST_SCALE = 0.01, 1.0, 100.0


def search_kernels(problem: SearchProblem, few_directions: Sequence[Candidate]) -> tuple[Candidate, list[Candidate]]:
    """Return the best candidate over all kernels and shapes, and the list of all candidates tried, finalists last.

    Parameters
    ----------
    problem : SearchProblem
        The input of the search. If the number of directions is given, only full maps are tried.
    few_directions : sequence of Candidate
        Candidates with full maps, best first, found with one radial kernel. The runs with that kernel start from all of
        these candidates. The runs with the other radial kernels start from the best result of the first runs. If there
        is no time for a run, the first candidate is returned unchanged.
    """
    make, rows, rng = problem.make, problem.rows, problem.rng
    product = PRODUCT if rows.n_features <= _WIDE else _CHEAPEST
    kernels = {name: KERNELS[name].with_gamma(1.0) for name in (*RADIAL, *product)}
    sample = median_sample(rows, rng)
    typical = {kernel: median_scale(kernel, sample) for kernel in kernels.values()}
    groups = grouped(make, rows, _GROUP_ROWS, _GROUPS, rng)
    runs = _Runs(problem)
    # The runs from `few_directions` come first, so that there is a result even with a very short time limit.
    directions = runs.improve([_warm(start, origin=Origin.DIRECTIONS) for start in few_directions], SHORT, groups)
    others = [
        _warm(end, origin=Origin.DIRECTIONS, kernel=kernels[name])
        for end in directions[:1]
        for name in RADIAL
        if kernels[name] != end.kernel
    ]
    runs.improve(others, SHORT, groups)
    if problem.choose_dimension:
        half = groups.first(-(-groups.n_groups // 2))
        diagonals = _run_diagonal_maps(runs, groups, half, typical)
        _run_square_maps(runs, groups, diagonals)
    if not runs.tried:
        # Either the deadline has passed, or the criterion is not finite for any kernel.
        if not few_directions or not math.isfinite(few_directions[0].score):
            raise FitError("The criterion is not finite for any kernel: check the scale of X and y.")
        return few_directions[0], []
    if not runs.problem.in_time or not runs.on_all_groups:
        # The search was stopped. Its best candidate is kept, even if it was evaluated on half of the groups only.
        return best_on_most_rows(runs.tried), runs.tried
    finalists = _finalists(runs, groups)
    if rows.n_rows <= _ONE_GROUP_ROWS:
        large = grouped(make, rows, rows.n_rows, 1, rng)
    else:
        large = grouped(make, rows, _LARGE_GROUP_ROWS, _LARGE_GROUPS, rng)
    return _winner(runs, large, finalists, typical), runs.tried


class _Runs:
    """The optimization runs of a kernel search, and the list of candidates tried."""

    def __init__(self, problem: SearchProblem) -> None:
        self.problem = problem
        self.tried: list[Candidate] = []

    @property
    def on_all_groups(self) -> list[Candidate]:
        """The candidates that were evaluated on all groups."""
        return [end for end in self.tried if not end.half_groups]

    def extrapolate_score(self, end: Candidate, on: Grouped) -> Candidate:
        """Return the candidate with its score extrapolated from the rows of `on` to all rows.

        The extrapolation matters, because the penalty for a parameter is smaller on all rows, relative to the decrease
        of the criterion, than on the rows of the search.
        """
        dof, n_rows = end.degrees_of_freedom, on.rows.total_weight
        total = score(on, end.value, dof, self.problem.total_weight) + optimism(dof, n_rows, self.problem.total_weight)
        return replace(end, score=total)

    def improve(self, starts: Sequence[Candidate], max_iter: int, on: Grouped) -> list[Candidate]:
        """Run `hkrr.estimators.search.candidates.improve` on each candidate in `starts`, with the criterion `on`.

        Return the candidates with a finite score, lowest score first. If there are at least as many groups as threads,
        the threads process the groups of one run in parallel. Otherwise the threads process several runs in parallel.
        """
        if not self.problem.in_time or not starts:
            return []
        self.problem.progress.begin(*describe_runs(starts))
        if joblib.effective_n_jobs(self.problem.n_jobs) == 1 and on.n_groups >= self.problem.n_threads:
            threaded = on.on_threads(self.problem.n_threads)
            ends = [
                improve(threaded, start, max_iter, self.problem.deadline) for start in starts if self.problem.in_time
            ]
        else:
            ends = self.problem.improve_each(on, starts, max_iter)
        ends = [self.extrapolate_score(end, on) for end in ends if math.isfinite(end.score)]
        self.tried.extend(ends)
        if self.tried:
            self.problem.progress.found(best_on_most_rows(self.tried))
        return sorted(ends, key=lambda end: end.score)

    def hopeful(self, ends: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates whose score is at most 0.05 nats per row and target above the lowest score.

        `ends` must be sorted by score, with the lowest score first.
        """
        far = _HOPELESS * self.problem.total_weight * self.problem.rows.n_targets
        return [end for end in ends if end.score - ends[0].score <= far]

    def errors(self, candidates: Sequence[Candidate], on: Grouped) -> list[float]:
        """Return the leave-one-out error of each candidate, averaged over the groups of rows and penalized (AIC).

        The penalty grows with the number of parameters of the map. After the deadline, only the first candidate is
        evaluated, and the errors of all other candidates are infinite.
        """
        leave_one_out = Grouped(LeaveOneOut, on.rows, on.n_groups, on.kernel, 1.0, self.problem.n_threads)
        n = on.rows.total_weight
        errors: list[float] = []
        for candidate in candidates:
            error = math.inf
            if self.problem.in_time or not errors:
                with suppress(ArithmeticError, np.linalg.LinAlgError):
                    error = leave_one_out.at(candidate.nu / n, candidate.kernel).reduced(candidate.B).value
            errors.append(error * (1.0 + 2.0 * candidate.degrees_of_freedom / n))
        return errors


def best_on_most_rows(candidates: Sequence[Candidate]) -> Candidate:
    """Return the finalist with the lowest score, or the candidate with the lowest score if there is no finalist."""
    return min(candidates, key=lambda end: (not end.finalist, end.score))


def _run_diagonal_maps(runs: _Runs, groups: Grouped, half: Grouped, typical: dict[Kernel, float]) -> list[Candidate]:
    """Run plain kernel ridge regression and diagonal maps. Return the best diagonal maps, lowest score first.

    All kernels are tried on half of the groups. The best plain candidate, and the best diagonal map of each of the best
    four kernels, continue on all groups. ``typical`` contains the scale of the median heuristic for each kernel.
    """
    ones = np.ones(groups.rows.n_features)
    nu = FIRST_LAMBDA * groups.rows.total_weight / groups.n_groups
    free = groups.rows.n_free_columns
    starts = [
        Candidate(Origin.PLAIN, kernel, scale * ones, nu, shape=Scaled(ones), n_free_columns=free, half_groups=True)
        for kernel, scale in typical.items()
    ]
    plains = runs.improve(starts, SHORT, half)
    runs.improve([_warm(end, half_groups=False) for end in plains[:_PLAINS]], SHORT, groups)
    # Diagonal maps start from plain kernel ridge regression, and from the scale of the median heuristic. The second run
    # is needed if plain kernel ridge regression attributes everything to noise, although one scale per column would fit
    # well.
    starts = [replace(start, nu=_MEDIAN_NOISE) for start in starts]
    starts = [_warm(end, typical[end.kernel], origin=Origin.DIAGONAL, shape=Diagonal()) for end in [*plains, *starts]]
    best = _first_of_each(runs.improve(starts, SHORT, half), lambda end: end.kernel)[:_DIAGONALS]
    best = [replace(end, half_groups=False, value=math.inf, score=math.inf, seconds=0.0) for end in best]
    ends = runs.improve(best[:_LONG_RUNS], LONG, groups) + runs.improve(best[_LONG_RUNS:], SHORT, groups)
    return sorted(ends, key=lambda end: end.score)


def _run_square_maps(runs: _Runs, groups: Grouped, diagonals: Sequence[Candidate]) -> None:
    """Run square maps that start from the best diagonal maps, then run these maps truncated to fewer directions.

    A square map has no rows for constant columns.
    """
    W, rows = runs.problem.total_weight, runs.problem.rows
    radial = [end for end in diagonals if square_map_is_affordable(W, rows.n_free_columns, end.kernel)]
    starts = [
        _warm(end, B=end.B * rows.varying_columns(), origin=Origin.SQUARE, shape=Full()) for end in radial[:_SQUARES]
    ]
    squares = runs.improve(starts, LONG, groups)
    runs.improve([cut for end in squares for cut in _truncated(runs, groups, end)], SHORT, groups)


def _finalists(runs: _Runs, groups: Grouped) -> list[Candidate]:
    """Return the candidates for the final comparison, at most one for each kernel, shape and number of directions.

    The finalists are the best candidate of each kind (see `_kind`), the three candidates with the smallest
    leave-one-out error, and the candidates with the lowest scores, up to nine in total. Diagonal maps with different
    kernels are different kinds, because a non-smooth kernel gains more from larger groups than a smooth kernel.
    """
    ranked = sorted(runs.on_all_groups, key=lambda end: end.score)
    distinct = _first_of_each(ranked, _configuration)
    errors = runs.errors(distinct, groups)
    by_error = [distinct[i] for i in np.argsort(errors, kind="stable")[:_FINALISTS_BY_ERROR]]
    best_of_kinds = runs.hopeful(_first_of_each(distinct, _kind))
    return _first_of_each([*best_of_kinds, *by_error, *runs.hopeful(distinct)], id)[:_FINALISTS]


def _winner(runs: _Runs, large: Grouped, finalists: Sequence[Candidate], typical: dict[Kernel, float]) -> Candidate:
    """Return the finalist with the lowest score.

    All finalists get a short run on the large groups. The best two then get a long run, and the winner gets one more
    long run.
    """
    # Each finalist starts from its own map. Some finalists start a second time with clipped scales and noise, because a
    # column whose scale became zero on a small sample may be useful on the larger groups.
    again = [replace(end, finalist=True, seconds=0.0) for end in finalists]
    again += [
        _warm(end, typical[end.kernel]) for end in again if end.nu < _LEAST_NOISE or isinstance(end.shape, Diagonal)
    ]
    last = runs.improve(again, SHORT, large)
    last += runs.improve(runs.hopeful(_first_of_each(last, _configuration))[:_LONG_RUNS], LONG, large)
    best = min(last or finalists[:1], key=lambda end: end.score)
    return min([best, *runs.improve([best], LONG, large)], key=lambda end: end.score)


def grouped(
    make: type[Criterion],
    rows: InMemoryRows,
    group_rows: int,
    n_groups: int,
    rng: np.random.RandomState,
) -> Grouped:
    """Return the criterion on at most ``n_groups`` random groups of at least ``group_rows`` rows.

    If there are fewer than ``group_rows`` rows, all rows form one group. With more than 50 columns, there are fewer
    groups.
    """
    n_groups = min(n_groups, max(2, n_groups * _WIDE // rows.n_features))
    n_rows = min(rows.n_rows, n_groups * group_rows)
    n_groups = max(1, n_rows // group_rows)
    some = rows.subset(rows.draw(n_rows, rng))
    return Grouped(make, some, n_groups, KERNELS["gaussian"].with_gamma(1.0), 1.0)


def _warm(candidate: Candidate, typical: float | None = None, **changes: Any) -> Candidate:
    """Return the candidate as a warm start, with noise and scales clipped to a range where gradients do not vanish.

    ``typical`` is the scale of the median heuristic for the kernel. If ``typical`` is given, the scales of a diagonal
    or identity map are clipped to a range around this scale. ``changes`` are other fields of the candidate to replace.
    """
    B = candidate.B
    if typical is not None and not isinstance(candidate.shape, Full):
        B = np.clip(B, typical / _FARTHEST_SCALE, typical * _FARTHEST_SCALE)
    nu = min(max(candidate.nu, _LEAST_NOISE), _MOST_NOISE)
    fresh = replace(candidate, B=B, nu=nu, value=math.inf, score=math.inf, seconds=0.0)
    return replace(fresh, **changes)


def _truncated(runs: _Runs, groups: Grouped, square: Candidate) -> list[Candidate]:
    """Return one or two warm starts: the square map, truncated to its largest directions.

    The last one has the rank with the lowest score. The other one has one direction more. If the square map itself has
    the lowest score, only the square map is returned.
    """
    criterion = groups.at(square.nu / groups.rows.total_weight, square.kernel)
    cuts = [square]
    with single_threaded_blas():
        B, _ = principal_form(square.B)
        for rank in range(len(B) - 1, 0, -1):
            if not runs.problem.in_time:
                break
            cut = replace(square, origin=Origin.SQUARE_CUT, B=B[:rank], value=criterion.reduced(B[:rank]).value)
            cuts.append(runs.extrapolate_score(cut, groups))
    best = min(range(len(cuts)), key=lambda i: cuts[i].score)
    return [_warm(cut) for cut in cuts[max(best - 1, 0) : best + 1]]


def _kind(candidate: Candidate) -> object:
    """Return a key for the kind of a candidate.

    The kinds are: few directions, square maps, and each combination of a shape (diagonal or identity) with a kernel.
    """
    if isinstance(candidate.shape, Full):
        return "directions" if candidate.origin is Origin.DIRECTIONS else "square"
    return type(candidate.shape), candidate.kernel


def _configuration(candidate: Candidate) -> tuple[Kernel, type, int]:
    return candidate.kernel, type(candidate.shape), candidate.n_components


def _first_of_each(candidates: Sequence[Candidate], key: Callable[[Candidate], object]) -> list[Candidate]:
    """Return the first candidate for each value of ``key(candidate)``, in the given order."""
    first: dict[object, Candidate] = {}
    for candidate in candidates:
        first.setdefault(key(candidate), candidate)
    return list(first.values())
