"""Atomic writing of files: at any time, a path contains either the complete old file or the complete new file."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def replace_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write bytes to a file atomically.

    The bytes are written to a temporary file in the same folder and flushed to the disk. Then the temporary file is
    renamed to `path`. If writing fails, the file at `path` is unchanged, no temporary file is left, and an OSError
    explains the failure.
    """
    with replacing(path) as temporary, open(temporary, "xb") as file:
        file.write(data)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of a temporary file. At the end of the context, this file replaces the file at `path`.

    The body of the context must create the temporary file and close it. If the body raises an error, the file at `path`
    is unchanged. An OSError is raised again with an explanation of why the file could not be written.
    """
    target = Path(os.path.realpath(path))  # write through symbolic links, as open does
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Not saved: this is a folder; give the name of a file", str(target))
    if target.exists() and not target.is_file():  # for example /dev/null, which must not be replaced
        raise OSError(errno.EINVAL, "Not saved: this is a device or a pipe; give the name of a file", str(target))
    temporary = target.with_name(f"{stem(target)}.{secrets.token_hex(8)}.tmp")
    try:
        try:
            yield temporary
            with open(temporary, "r+b") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:  # including Ctrl-C
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise explain_write_error(error, target) from error
    _sync_folder(target.parent)


def remove_unfinished(path: Path) -> None:
    """Remove the temporary files that killed processes have left for this path.

    The caller must make sure that no other process is writing to the path.
    """
    ours = re.compile(rf"{re.escape(stem(path))}\.[0-9a-f]{{16}}\.tmp")
    for each in os.listdir(path.parent):
        if ours.fullmatch(each):
            (path.parent / each).unlink(missing_ok=True)


def stem(target: Path) -> str:
    """Return the common prefix of the names of the temporary files and the lock file that belong to `target`.

    The prefix contains the first 40 characters of the name of the file, and a hash of the full name. Files with
    different names therefore have different prefixes, and no process removes the temporary files of another file.
    """
    return f".{target.name[:40]}.{hashlib.blake2b(os.fsencode(target.name), digest_size=8).hexdigest()}"


def explain_write_error(error: OSError, target: Path) -> OSError:
    """Return an OSError that says what could not be written, why, and what to do."""
    reason = f"Not saved ({error.strerror or error}); {_remedy(error)}; an existing file is unchanged"
    return OSError(error.errno or errno.EIO, reason, str(target))


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space, or choose another disk"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "the folder is not writable, so choose another one"
    if error.errno == errno.ENOENT:
        return "the folder does not exist, so create it first"
    return "check the disk, or choose another folder"


def _sync_folder(folder: Path) -> None:
    """Flush the renaming of a file in a folder to the disk.

    On Windows and some network file systems this function does nothing.
    """
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            reason = f"Saved, but a power failure could restore the previous file ({error.strerror})"
            raise OSError(error.errno, reason, str(folder)) from error
    finally:
        os.close(descriptor)
