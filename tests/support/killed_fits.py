"""A process that forks fits and kills them: Python starts once, a victim takes milliseconds.

Run as a script it reads one JSON request a line, and answers each with a line. `Victims` is the test's end of it.
"""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


class Victims:
    """The process, and what it is asked for."""

    def __init__(self):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "error", __file__]
        self.process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment)

    def fit(self, case, checkpoint, out, *, kill_after=None, every=0.02):
        """Fit the case; return the exit status (-9 where it was killed) and the seconds it took."""
        request = {"case": case, "checkpoint": str(checkpoint) if checkpoint else None, "out": str(out)}
        self.process.stdin.write(json.dumps({**request, "kill_after": kill_after, "every": every}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        """End it."""
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=60)


def data(seed=0, m=90, D=4):
    """Return the rows that all victims are fitted to."""
    from hkrr.datasets import make_mim_sines

    made = make_mim_sines(m, D, 2, random_state=seed)
    return made.X, made.y


CASES = {
    "lbfgs": ("HyperKernelRidge", {"n_centers": 60}),
    "evidence": ("HyperKernelRidge", {"criterion": "evidence", "reg_lambda": "auto", "n_centers": 40}),
    "varpro": ("HyperKernelRidge", {"solver": "varpro", "n_centers": 10, "max_iter": 150, "reg_lambda": 1e-5}),
    "agd": ("HyperKernelRidge", {"solver": "agd", "n_centers": 10, "max_iter": 150, "reg_lambda": 1e-5}),
    "search": ("HyperKernelRidgeCV", {"n_init": 1}),
    "kernels": ("HyperKernelRidgeCV", {"kernel": "auto", "n_components": [1, 2], "n_init": 1}),
    "grid": ("HyperKernelRidgeCV", {"cv": "holdout", "criterion": "training", "n_components": [1, 2], "n_init": 2}),
}


def model_of(case, **more):
    """Return the estimator of a case."""
    import hkrr

    name, parameters = CASES[case]
    if case == "grid":
        parameters = {**parameters, "reg_lambdas": [1e-2, 1e-3]}
    return getattr(hkrr, name)(random_state=0, n_jobs=1, **parameters, **more)


def count_evaluations():
    """Count what is computed of objectives from now on: a list of one number."""
    from hkrr.criteria.base import Criterion
    from hkrr.objective import Objective

    count = [0]

    def counted(method):
        def call(*arguments):
            count[0] += 1
            return method(*arguments)

        return call

    for cls, name in ((Objective, "reduced"), (Objective, "value_and_grad_B"), (Criterion, "reduced")):
        setattr(cls, name, counted(getattr(cls, name)))
    return count


def _victim(request):
    count = count_evaluations()
    X, y = data()
    model = model_of(request["case"], checkpoint=request["checkpoint"], checkpoint_every=request["every"]).fit(X, y)
    names = ("components_", "dual_coef_", "centers_", "singular_values_")
    arrays = {name: getattr(model, name) for name in names}
    arrays |= {"predicted": model.predict(X), "objective": model.history_["objective"], "count": count[0]}
    np.savez(request["out"], **arrays)


def _serve():
    import hkrr

    warnings.simplefilter("ignore", hkrr.EdgeWarning)  # grids as small as these end at their edges
    model_of("lbfgs", max_iter=1).fit(*data())  # what is imported late is imported here, once
    for line in sys.stdin:
        request = json.loads(line)
        began = time.perf_counter()
        child = os.fork()
        if child == 0:
            try:
                _victim(request)
                os._exit(0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        status, after = None, request["kill_after"]
        while after is not None and status is None and time.perf_counter() - began < after:
            ended, code = os.waitpid(child, os.WNOHANG)
            status = code if ended else None
            time.sleep(0.001)
        if after is not None and status is None:
            os.kill(child, signal.SIGKILL)
        if status is None:
            _, status = os.waitpid(child, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), time.perf_counter() - began]), flush=True)


if __name__ == "__main__":
    _serve()
