"""hkrr fit as a process: Ctrl-C and kills with a checkpoint, pipes, and what is imported before anything is asked."""

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
from houses import TARGET, table

# The handler anew: a shell that starts this in the background would have it ignore the signal.
MAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import hkrr.__main__ as m; m.main()"


def _until(log, process, text):
    """Wait until the process has said it."""
    for _ in range(12_000):
        if text in log.read_text():
            return
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    pytest.fail(f"{text!r} was never said: {log.read_text()}")


def _ended(arguments, log, text, how):
    """Start a command, end it by a signal when it has said that, and return its status and all it said."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with open(log, "w") as file:
        command = [sys.executable, "-c", MAIN, *arguments]
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
    try:
        _until(log, process, text)
        process.send_signal(how)
        return process.wait(timeout=600), log.read_text()
    finally:
        if process.poll() is None:
            process.kill()


def test_ctrl_c_and_a_kill_and_the_same_command_again(tmp_path):
    path, columns = tmp_path / "houses.csv", ["area (m2)", "age", "town", TARGET]
    table()[columns].to_csv(path, index=False)
    out, checkpoint = tmp_path / "m.hkrr", tmp_path / "fit.checkpoint"
    command = ["fit", str(path), "--kernel", "gaussian", "-o", str(out)]
    kept = [*command, "--checkpoint", str(checkpoint), "--checkpoint-every", "0.2"]
    new = read_table(path)
    # Ctrl-C, once something was found: that is kept.
    status, said = _ended(kept, tmp_path / "log", "held-out R2", signal.SIGINT)
    assert status == 130, said
    assert "Traceback" not in said
    last = said.splitlines()[-1]
    assert last == f"Stopped. The best model so far is in {out}; the same command goes on from its checkpoint."
    assert hkrr.load(out).predict(new).shape == (120,)
    assert hkrr.load(out).model_.result_.reason == "interrupted"
    assert "The fit was interrupted: this is the best" in CliRunner().invoke(cli.app, ["info", str(out)]).stdout
    # A kill, later on.
    status, said = _ended(kept, tmp_path / "log", "3 directions", signal.SIGKILL)
    assert status == -signal.SIGKILL, said
    assert f"going on from {checkpoint}: " in said
    assert " of the search\n" in said
    # And to the end: the model of a fit that nothing has broken.
    assert CliRunner().invoke(cli.app, kept).exit_code == 0
    assert f"going on from {checkpoint}: the fit had ended\n" in CliRunner().invoke(cli.app, kept).stderr
    again = hkrr.load(out)
    assert CliRunner().invoke(cli.app, command).exit_code == 0
    unbroken = hkrr.load(out)
    assert again.encoder_ == unbroken.encoder_
    assert_allclose(again.predict(new), unbroken.predict(new), rtol=1e-10, atol=1e-10)
    assert_allclose(again.held_out_.r2, unbroken.held_out_.r2, atol=1e-10)
    # With other rows the checkpoint is refused, and the model stays.
    table(119)[columns].to_csv(path, index=False)
    result = CliRunner().invoke(cli.app, [*kept, "-q"])
    assert result.exit_code == 2
    assert "it belongs to another fit" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert_array_equal(hkrr.load(out).predict(new), unbroken.predict(new))


def test_pipes(tmp_path):
    """A table through standard input, predictions through standard output, and a reader that has heard enough."""
    frame = table(400)
    text = frame[["area (m2)", "age", TARGET]].to_csv(index=False)
    main = f"{sys.executable} -m hkrr"
    options = "--kernel gaussian --n-components 1 -q"
    line = f"{main} fit - {options} -o m && {main} predict m - --no-intervals < in.csv | head -n 2"
    (tmp_path / "in.csv").write_text(text)
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; cat in.csv | {line}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert "Traceback" not in done.stderr
    first, second = done.stdout.splitlines()
    assert first == "prediction"
    assert float(second) == pytest.approx(hkrr.load(tmp_path / "m").predict(frame.iloc[:1])[0], rel=1e-12)
