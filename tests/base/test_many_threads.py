"""Eight threads at once, each fitting and predicting, do what one does after the other: the same to the last bit.

Sums are taken in the order of the rows whatever adds them, and BLAS is held at one thread for the whole process while
any fit runs (fits with 3,000 centers and more are not: they agree to rounding). So nothing here depends on who comes
first, and no tolerance is needed. BLAS is allowed two threads around these tests, whatever the environment says:
otherwise there would be no setting for the threads to quarrel about.
"""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from threadpoolctl import threadpool_info, threadpool_limits

from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.datasets import make_mim_sines

N_THREADS = 8
WAIT = 300  # seconds: a guard against waiting forever, not a measurement
DATA = make_mim_sines(100, n_features=6, n_components=2, random_state=0)
NEW = np.random.default_rng(1).normal(size=(90, 6))


@pytest.fixture(autouse=True)
def two_blas_threads():
    with threadpool_limits(2, user_api="blas"):
        before = threadpool_info()
        yield
        assert threadpool_info() == before  # whoever left last has put it back


def _ridge(k, **options):
    return HyperKernelRidge(2, n_centers=25, n_init=2, max_iter=10, random_state=k, **options)


# Every thread fits a model of its own: k is its number.
FITS = {
    "lbfgs": lambda k: _ridge(k, n_jobs=1),
    "lbfgs, two threads each": lambda k: _ridge(k, n_jobs=2, block_size=30),
    "varpro": lambda k: _ridge(k, n_jobs=1, solver="varpro"),
    "agd": lambda k: _ridge(k, n_jobs=1, solver="agd"),
    "evidence": lambda k: _ridge(k, n_jobs=1, criterion="evidence", reg_lambda="auto"),
    "all rows": lambda k: _ridge(k, n_jobs=1).set_params(n_centers="all"),
    "search": lambda k: HyperKernelRidgeCV([2], n_init=1, n_jobs=1, random_state=k),
    "grid": lambda k: HyperKernelRidgeCV(
        [1, 2], criterion="training", cv="holdout", reg_lambdas=[1e-2], n_init=1, n_jobs=1, random_state=k
    ),
}
QUICK = ("lbfgs, two threads each", "evidence", "search")


def _fitted(model, X=DATA.X, y=DATA.y):
    """All that a fit leaves, and what it predicts."""
    model.fit(X, y)
    return model.components_, model.dual_coef_, np.asarray(model.gamma_), model.predict(NEW), model.transform(NEW)


def _at_once(work):
    """work(0), ..., work(7) in threads that begin together."""
    together = Barrier(N_THREADS, timeout=WAIT)

    def begin(k):
        together.wait()
        return work(k)

    with ThreadPoolExecutor(N_THREADS) as threads:
        return [end.result(WAIT) for end in [threads.submit(begin, k) for k in range(N_THREADS)]]


def _assert_same(at_once, in_turn):
    for ours, theirs in zip(at_once, in_turn, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert_array_equal(one, other)


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # of a grid as small as this one
@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.thorough) for kind in FITS]
)
def test_fits_at_once_are_fits_in_turn(kind):
    make = FITS[kind]
    in_turn = [_fitted(make(k)) for k in range(N_THREADS)]
    assert not np.array_equal(in_turn[0][0], in_turn[1][0])  # other seeds are other fits: no two could be mistaken
    _assert_same(_at_once(lambda k: _fitted(make(k))), in_turn)


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # as above
def test_a_mix_of_fits_from_memory_and_from_a_file(tmp_path):
    """A file's rows are read by one more thread for each fit. (The grid takes none: it goes with data in memory.)"""
    np.save(tmp_path / "rows.npy", np.column_stack([DATA.X, DATA.y]))
    makes = list(FITS.values())

    def work(k):
        from_file = k % 2 == 1 and makes[k] is not FITS["grid"]
        return _fitted(makes[k](0), *((tmp_path / "rows.npy", -1) if from_file else (DATA.X, DATA.y)))

    _assert_same(_at_once(work), [work(k) for k in range(N_THREADS)])


@pytest.mark.parametrize("kind", ["lbfgs", "search"])
def test_one_model_predicts_in_eight_threads(kind):
    """The model is shared: predicting leaves no trace in it, so that others may predict at the same time."""
    model = FITS[kind](0).fit(DATA.X, DATA.y)
    pieces = np.array_split(np.random.default_rng(2).normal(size=(4000, 6)), N_THREADS)
    before = dict(vars(model))

    def work(k):
        return [(model.predict(pieces[k]), model.transform(pieces[k])) for _ in range(5)]

    in_turn = [work(k) for k in range(N_THREADS)]
    for ours, theirs in zip(_at_once(work), in_turn, strict=True):
        _assert_same(ours, theirs)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())


def test_predictions_during_fits():
    """Four predict with a shared model while four others fit, which change the threads of BLAS under them."""
    model = FITS["all rows"](0).fit(DATA.X, DATA.y)
    many = np.random.default_rng(3).normal(size=(20_000, 6))

    def work(k):
        return (model.predict(many),) if k % 2 else _fitted(FITS["lbfgs"](k))

    _assert_same(_at_once(work), [work(k) for k in range(N_THREADS)])


@pytest.mark.parametrize("kind", ["lbfgs", "lbfgs, two threads each", "search"])
@pytest.mark.thorough
def test_clones_fitted_in_threads_of_joblib(kind):
    """As scikit-learn's own tools do it: one estimator, cloned for each task."""
    model = FITS[kind](0)
    halves = [(DATA.X[k::2], DATA.y[k::2]) for k in (0, 1)] * 4
    tasks = [joblib.delayed(lambda X, y: _fitted(clone(model), X, y))(X, y) for X, y in halves]
    with joblib.parallel_config("threading", n_jobs=N_THREADS):
        at_once = joblib.Parallel()(tasks)
    _assert_same(at_once, [_fitted(clone(model), X, y) for X, y in halves])
