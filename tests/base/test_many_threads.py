"""Eight threads that fit and predict at the same time get bitwise the same results as one thread.

Sums over rows are computed in the order of the rows, on any number of threads. While a fit with fewer than 3,000
centers runs, BLAS is limited to one thread in the whole process. So the results of these fits do not depend on timing,
and no tolerance is needed. Fits with more centers, which agree only up to rounding, are not tested here. The tests set
the number of BLAS threads to two, to check that the fits restore this number.
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
# Seconds after which a test fails instead of waiting forever.
WAIT = 100
DATA = make_mim_sines(100, n_features=6, n_components=2, random_state=0)
NEW = np.random.default_rng(1).normal(size=(90, 6))


@pytest.fixture(autouse=True)
def two_blas_threads():
    with threadpool_limits(2, user_api="blas"):
        before = threadpool_info()
        yield
        assert threadpool_info() == before  # the last fit has restored the number of BLAS threads


def _ridge(k, **options):
    settings = {"reg_lambda": 1e-2, "n_centers": 25, "n_init": 2, "max_iter": 5, "random_state": k}
    return HyperKernelRidge(2, **{**settings, **options})


# Functions that return the estimator of thread number k.
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
# The fits that `make test` runs in all threads at once. `make thorough` does this with every fit in FITS. The test of
# mixed fits always uses every fit.
QUICK = ("lbfgs, two threads each",)


def _fitted(model, X=DATA.X, y=DATA.y):
    """Fit a model to X and y, and return fitted attributes and the predictions and latent coordinates of NEW."""
    model.fit(X, y)
    return model.components_, model.dual_coef_, np.asarray(model.gamma_), model.predict(NEW), model.transform(NEW)


def _concurrently(work):
    """Return work(0), ..., work(7), computed in threads that start together."""
    together = Barrier(N_THREADS, timeout=WAIT)

    def start(k):
        together.wait()
        return work(k)

    with ThreadPoolExecutor(N_THREADS) as threads:
        return [end.result(WAIT) for end in [threads.submit(start, k) for k in range(N_THREADS)]]


def _assert_same(concurrent, sequential):
    for ours, theirs in zip(concurrent, sequential, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert_array_equal(one, other)


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # the best candidate of such a small grid is at its edge
@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.thorough) for kind in FITS]
)
def test_concurrent_and_sequential_fits_agree(kind):
    make = FITS[kind]
    sequential = [_fitted(make(k)) for k in range(N_THREADS)]
    assert not np.array_equal(sequential[0][0], sequential[1][0])  # different seeds give different fits
    _assert_same(_concurrently(lambda k: _fitted(make(k))), sequential)


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # as in the previous test
def test_a_mix_of_fits_from_memory_and_from_a_file(tmp_path):
    """Test that eight fits of different kinds give the same results at the same time as one after another.

    Every second fit reads the rows from a file, in an additional thread. The grid search is an exception, because it
    supports only data in memory.
    """
    np.save(tmp_path / "rows.npy", np.column_stack([DATA.X, DATA.y]))
    makes = list(FITS.values())

    def work(k):
        from_file = k % 2 == 1 and makes[k] is not FITS["grid"]
        return _fitted(makes[k](0), *((tmp_path / "rows.npy", -1) if from_file else (DATA.X, DATA.y)))

    _assert_same(_concurrently(work), [work(k) for k in range(N_THREADS)])


@pytest.mark.parametrize("kind", ["lbfgs", "search"])
def test_one_model_predicts_in_eight_threads(kind):
    """Test that threads can share a fitted model: predictions agree, and the model is not changed."""
    model = FITS[kind](0).fit(DATA.X, DATA.y)
    pieces = np.array_split(np.random.default_rng(2).normal(size=(4000, 6)), N_THREADS)
    before = dict(vars(model))

    def work(k):
        return [(model.predict(pieces[k]), model.transform(pieces[k])) for _ in range(5)]

    sequential = [work(k) for k in range(N_THREADS)]
    for ours, theirs in zip(_concurrently(work), sequential, strict=True):
        _assert_same(ours, theirs)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())


def test_predictions_during_fits():
    """Test that predictions of a shared model in four threads do not change while four other threads fit models.

    The fits change the number of BLAS threads of the process.
    """
    model = FITS["all rows"](0).fit(DATA.X, DATA.y)
    many = np.random.default_rng(3).normal(size=(20_000, 6))

    def work(k):
        return (model.predict(many),) if k % 2 else _fitted(FITS["lbfgs"](k))

    _assert_same(_concurrently(work), [work(k) for k in range(N_THREADS)])


@pytest.mark.parametrize("kind", ["lbfgs", "lbfgs, two threads each", "search"])
@pytest.mark.thorough
def test_clones_fitted_in_threads_of_joblib(kind):
    """Test that clones of one estimator, fitted in joblib threads, give the same results as sequential fits.

    Scikit-learn's own tools, such as `GridSearchCV`, fit clones in this way.
    """
    model = FITS[kind](0)
    halves = [(DATA.X[k::2], DATA.y[k::2]) for k in (0, 1)] * 4
    tasks = [joblib.delayed(lambda X, y: _fitted(clone(model), X, y))(X, y) for X, y in halves]
    with joblib.parallel_config("threading", n_jobs=N_THREADS):
        concurrent = joblib.Parallel()(tasks)
    _assert_same(concurrent, [_fitted(clone(model), X, y) for X, y in halves])
