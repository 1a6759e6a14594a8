"""Writing a file so that there is, at every moment, either the old one or the new one, whole."""

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
    """Write the bytes to a temporary file beside the target, make sure of them on the disk, and rename it.

    Where that fails the target is as it was, no temporary file is left, and the OSError says so.
    """
    with replacing(path) as temporary, open(temporary, "xb") as file:
        file.write(data)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give the path of a temporary file, to be written and closed; the same as `replace_file`, for what comes in parts.

    An error within leaves the target as it was; an OSError within is taken for one of the writing.
    """
    target = Path(os.path.realpath(path))  # of a link the file behind it, as with any other way of writing
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Not saved: this is a folder; give the name of a file", str(target))
    if target.exists() and not target.is_file():  # a rename would put a plain file in the place of /dev/null
        raise OSError(errno.EINVAL, "Not saved: this is a device or a pipe; give the name of a file", str(target))
    temporary = target.with_name(f"{stem(target)}.{secrets.token_hex(8)}.tmp")
    try:
        try:
            yield temporary
            with open(temporary, "r+b") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:  # Ctrl-C too
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise explained(error, target) from error
    _sync_folder(target.parent)


def remove_unfinished(path: Path) -> None:
    """Remove the temporary files of writes that a kill has ended; for whoever alone writes to this path."""
    ours = re.compile(rf"{re.escape(stem(path))}\.[0-9a-f]{{16}}\.tmp")
    for each in os.listdir(path.parent):
        if ours.fullmatch(each):
            (path.parent / each).unlink(missing_ok=True)


def stem(target: Path) -> str:
    """Return what the names of files that go with a file begin with: short, and another one for another name.

    Names that begin alike are told apart by the digest: whoever writes to one must not remove what belongs to another.
    """
    return f".{target.name[:40]}.{hashlib.blake2b(os.fsencode(target.name), digest_size=8).hexdigest()}"


def explained(error: OSError, target: Path) -> OSError:
    """Return the error that says what could not be written, why, and what to do."""
    reason = f"Not saved ({error.strerror or error}): {_remedy(error)}; what was there before is as it was"
    return OSError(error.errno or errno.EIO, reason, str(target))


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room, or choose another disk"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "the folder cannot be written to: choose another one"
    if error.errno == errno.ENOENT:
        return "the folder does not exist: make it first"
    return "check the disk, or choose another folder"


def _sync_folder(folder: Path) -> None:
    """Make sure of the rename, where the system can: on Windows, and on some network disks, there is no way."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            reason = f"Saved, but a power cut may bring back what was there before ({error.strerror})"
            raise OSError(error.errno, reason, str(folder)) from error
    finally:
        os.close(descriptor)
