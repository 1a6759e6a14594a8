"""Test that the same seed gives the same model, up to 1e-8, in processes with different numbers of threads.

The problems are well conditioned, so that a different order of summation changes the results only a little
(docs/scaling.md): rough kernels, data in few dimensions, and fits that converge or run for only a few iterations.
"""

import os
import subprocess
import sys

import numpy as np
import pytest

_CHILD = """
import sys
import numpy as np
from threadpoolctl import threadpool_info
from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.datasets import make_mim_sines

folder, n_jobs, blas = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
assert {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"} == {blas}
data = make_mim_sines(700, n_features=5, n_components=2, random_state=0)
new = np.random.default_rng(1).normal(size=(200, 5))
rough = dict(kernel="laplace", n_jobs=n_jobs, random_state=0)
centers = dict(rough, n_centers=60, block_size=100, max_iter=15)
models = {
    "lbfgs": HyperKernelRidge(2, **centers),
    "varpro": HyperKernelRidge(2, solver="varpro", **centers),
    "agd": HyperKernelRidge(2, solver="agd", **centers),
    "evidence": HyperKernelRidge(2, criterion="evidence", reg_lambda="auto", **centers),
    "all": HyperKernelRidge(2, n_centers="all", max_iter=10, **rough),
    "search": HyperKernelRidgeCV([2], n_init=1, refit=100, **rough),
}
for name, model in models.items():
    model.fit(data.X[:300] if name == "all" else data.X, data.y[:300] if name == "all" else data.y)
    np.savez(f"{folder}/{name}.npz", components=model.components_, predicted=model.predict(new))
"""

MODELS = ["lbfgs", "varpro", "agd", "evidence", "all", "search"]


def _fit_elsewhere(folder, n_blas, n_jobs):
    folder.mkdir()
    environment = dict(os.environ, OMP_NUM_THREADS=str(n_blas), OPENBLAS_NUM_THREADS=str(n_blas))
    command = [sys.executable, "-W", "error", "-c", _CHILD, str(folder), str(n_jobs), str(n_blas)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=55, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.thorough
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="BLAS uses one thread on a single processor")
def test_other_threads_in_other_processes_give_the_same_model(tmp_path):
    """Test that a process with one thread gives the same models as a process with two BLAS threads and n_jobs=2."""
    folders = [_fit_elsewhere(tmp_path / f"{blas} {jobs}", blas, jobs) for blas, jobs in [(1, 1), (2, 2)]]
    for name in MODELS:
        one, other = (np.load(folder / f"{name}.npz") for folder in folders)
        for part in ("components", "predicted"):
            atol = 1e-8 * np.abs(one[part]).max()
            np.testing.assert_allclose(other[part], one[part], rtol=0, atol=atol, err_msg=name)
