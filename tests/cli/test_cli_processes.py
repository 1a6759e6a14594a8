"""Test hkrr fit in a separate process that is stopped by Ctrl-C or killed and then resumed, and tables in pipes."""

import os
import signal
import subprocess
import sys
import time

import pytest
from numpy.testing import assert_allclose, assert_array_equal
from typer.testing import CliRunner

import hkrr
from hkrr import cli
from hkrr.tables import read_table
from support.house_table import TARGET, table
from support.platforms import posix_only

# Restore the default handler of SIGINT: a shell that starts the tests in the background ignores the signal.
MAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import hkrr.__main__ as m; m.main()"


def _wait_for(log, process, text):
    """Wait until the file `log`, with the output of a process, contains the text. Fail if the process ends before."""
    for _ in range(10_000):
        if text in log.read_text():
            return
        assert process.poll() is None, log.read_text()
        time.sleep(0.01)
    pytest.fail(f"{text!r} is not in the log: {log.read_text()}")


def _run_until(arguments, log, text, how):
    """Start hkrr with the arguments, and send it the signal `how` once the file `log` contains the text.

    The output of the process is written to `log`. Return the exit status of the process, and its output.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with open(log, "w") as file:
        command = [sys.executable, "-c", MAIN, *arguments]
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
    try:
        _wait_for(log, process, text)
        process.send_signal(how)
        return process.wait(timeout=60), log.read_text()
    finally:
        if process.poll() is None:
            process.kill()


@posix_only
def test_resume_after_ctrl_c_and_after_a_kill(tmp_path):
    path, columns = tmp_path / "houses.csv", ["area (m2)", "age", "town", TARGET]
    table()[columns].to_csv(path, index=False)
    out, checkpoint = tmp_path / "m.hkrr", tmp_path / "fit.checkpoint"
    command = ["fit", str(path), "--kernel", "gaussian", "-o", str(out)]
    resumable = [*command, "--checkpoint", str(checkpoint), "--checkpoint-every", "0.2"]
    new = read_table(path)
    # Ctrl-C after a first candidate was found saves the best model so far.
    status, output = _run_until(resumable, tmp_path / "log", "held-out R2", signal.SIGINT)
    assert status == 130, output
    assert "Traceback" not in output
    last = output.splitlines()[-1]
    assert last == f"Stopped. The best model so far was saved to {out}. Run the same command again to resume."
    assert hkrr.load(out).predict(new).shape == (120,)
    assert hkrr.load(out).model_.result_.reason == "interrupted"
    assert "The fit was interrupted. This is the best" in CliRunner().invoke(cli.app, ["info", str(out)]).stdout
    # Kill the resumed fit later in the search.
    status, output = _run_until(resumable, tmp_path / "log", "refining the best directions", signal.SIGKILL)
    assert status == -signal.SIGKILL, output
    assert f"Resuming from {checkpoint}: the file contains " in output
    assert " of the search\n" in output
    # Resume to the end. The model is the same as the model of an uninterrupted fit.
    assert CliRunner().invoke(cli.app, resumable).exit_code == 0
    assert f"Resuming from {checkpoint}: the fit is finished\n" in CliRunner().invoke(cli.app, resumable).stderr
    again = hkrr.load(out)
    assert CliRunner().invoke(cli.app, command).exit_code == 0
    unbroken = hkrr.load(out)
    assert again.encoder_ == unbroken.encoder_
    assert_allclose(again.predict(new), unbroken.predict(new), rtol=1e-10, atol=1e-10)
    assert_allclose(again.held_out_.r2, unbroken.held_out_.r2, atol=1e-10)
    # With different training rows, the checkpoint is refused and the model file is unchanged.
    table(119)[columns].to_csv(path, index=False)
    result = CliRunner().invoke(cli.app, [*resumable, "-q"])
    assert result.exit_code == 2
    assert "it belongs to another fit" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert_array_equal(hkrr.load(out).predict(new), unbroken.predict(new))


@posix_only
def test_pipes(tmp_path):
    """Test that tables are read from standard input, and that an output pipe may be closed early."""
    frame, model = table(400), tmp_path / "m"
    text = frame[["area (m2)", "age", TARGET]].to_csv(index=False)
    fit = ["fit", "-", "--kernel", "gaussian", "--n-components", "1", "-q", "-o", str(model)]
    assert CliRunner().invoke(cli.app, fit, input=text).exit_code == 0
    (tmp_path / "in.csv").write_text(text)
    command = f"cat in.csv | {sys.executable} -m hkrr predict m - --no-intervals | head -n 2"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "Traceback" not in done.stderr
    first, second = done.stdout.splitlines()
    assert first == "prediction"
    assert float(second) == pytest.approx(hkrr.load(model).predict(frame.iloc[:1])[0], rel=1e-12)
