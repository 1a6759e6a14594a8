"""A server process that runs fits in forked processes and can kill them.

Python starts only once, and a fork takes milliseconds. When this module is run as a script, it is the server: it reads
one JSON request per line and answers each request with a line. `FitServer` is the client.
"""

import json
import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np

# Seconds after which a fit is killed if the request has no `kill_after`, and seconds to wait for the answer after that.
# The sum is less than half of the time limit of a test. On an idle machine, a fit takes less than a second.
FIT_LIMIT, GRACE = 30, 20


class FitServer:
    """The client: it starts the server process and sends requests to it."""

    def __init__(self):
        command, environment = [sys.executable, "-W", "error", __file__], {**os.environ, "OMP_NUM_THREADS": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
        self.process = subprocess.Popen(command, **pipes, env=environment, start_new_session=True)

    def fit(self, case, checkpoint, out, *, kill_after=None, every=0.02):
        """Run the fit of a case in a forked process, and return its exit status and duration.

        The status is -9 if the process was killed. `kill_after` is the number of seconds after which it is killed.
        `every` is the parameter ``checkpoint_every``. The fitted arrays are written to the file `out`.
        """
        from support.child_processes import read_line

        request = {"case": case, "checkpoint": str(checkpoint) if checkpoint else None, "out": str(out)}
        self.process.stdin.write(json.dumps({**request, "kill_after": kill_after, "every": every}).encode() + b"\n")
        return json.loads(read_line(self.process, self.process.stdout, FIT_LIMIT + GRACE))

    def close(self):
        """Kill the server and its forks."""
        from support.child_processes import kill_session

        kill_session(self.process)
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=60)


def data(seed=0, m=90, D=4):
    """Return the training data of all cases."""
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
    """Return the unfitted estimator of a case, with the parameters in `more`."""
    import hkrr

    name, parameters = CASES[case]
    if case == "grid":
        parameters = {**parameters, "reg_lambdas": [1e-2, 1e-3]}
    return getattr(hkrr, name)(random_state=0, n_jobs=1, **parameters, **more)


def count_evaluations():
    """Return a list whose only entry counts the evaluations of objectives from now on."""
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


def _fit(request):
    count = count_evaluations()
    X, y = data()
    model = model_of(request["case"], checkpoint=request["checkpoint"], checkpoint_every=request["every"]).fit(X, y)
    names = ("components_", "dual_coef_", "centers_", "singular_values_")
    arrays = {name: getattr(model, name) for name in names}
    arrays |= {"predicted": model.predict(X), "objective": model.history_["objective"], "count": count[0]}
    np.savez(request["out"], **arrays)


def _serve():
    import hkrr

    warnings.simplefilter("ignore", hkrr.EdgeWarning)  # the best candidate of such a small grid is at its edge
    model_of("lbfgs", max_iter=1).fit(*data())  # run all lazy imports before forking
    for line in sys.stdin:
        request = json.loads(line)
        started = time.perf_counter()
        child = os.fork()
        if child == 0:
            try:
                _fit(request)
                os._exit(0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        limit = FIT_LIMIT if request["kill_after"] is None else request["kill_after"]
        ended, status = 0, 0
        while not ended and time.perf_counter() - started < limit:
            ended, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.001)
        if not ended:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), time.perf_counter() - started]), flush=True)


if __name__ == "__main__":
    _serve()
