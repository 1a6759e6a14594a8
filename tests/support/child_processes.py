"""Child processes that cannot hang a test: reads have a timeout, and the processes are killed at the end."""

import os
import select
import signal
import subprocess
from contextlib import contextmanager, suppress

# Maximum number of seconds to wait for an answer. On an idle machine an answer takes at most a second.
TIMEOUT = 60


@contextmanager
def child_process(command, **options):
    """Context manager that starts a process, and at the end kills the process and its child processes."""
    with subprocess.Popen(command, start_new_session=True, bufsize=0, **options) as process:
        try:
            yield process
        finally:
            kill_session(process)


def kill_session(process):
    """Kill a process that was started with ``start_new_session=True``, and its child processes."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def read_line(process, stream, timeout=TIMEOUT):
    """Return the next line of an unbuffered pipe as text, or raise TimeoutError."""
    line = b""
    while not line.endswith((b"\n", b"\r")):
        if not select.select([stream], [], [], timeout)[0]:
            raise TimeoutError(f"no answer from process {process.pid} within {timeout} s; it wrote {line!r} so far")
        part = os.read(stream.fileno(), 1)
        if not part:
            raise EOFError(f"process {process.pid} ended; it wrote {line!r} last")
        line += part
    return line.decode()
