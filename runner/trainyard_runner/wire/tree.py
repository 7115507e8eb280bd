"""Lists and removes directory trees, without following links, at any depth.

The guard imports this module while a task waits. The module therefore avoids
`shutil` and `dataclasses`, whose imports take 10 ms each.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_TRIES = 3
# Linux allows 4,095 bytes for a path, and 255 for a name. A directory whose path has more than this
# many bytes is moved to the top directory before it is removed.
_DEEP = 2048


def files(root: str) -> Iterator[str]:
    """Yield relative paths of readable files below `root`, but no links."""
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(f"{root}/{inside}") as items:
            for item in items:
                if item.is_dir(follow_symlinks=False):
                    waiting.append(f"{inside}{item.name}/")
                elif item.is_file(follow_symlinks=False) and os.access(item.path, os.R_OK):
                    yield f"{inside}{item.name}"


def remove(path: str) -> None:
    """Remove a file, link or directory tree, even if it is write-protected.

    A missing path is no error. If parts cannot be removed, removes the rest,
    then raises the first error.
    """
    for tries_left in reversed(range(_TRIES)):  # a process may still write into the directory
        errors: list[OSError] = []
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return

        try:
            if stat.S_ISDIR(mode):
                _empty(path, errors)
                Path(path).rmdir()
            else:
                Path(path).unlink()
        except OSError as error:
            if not tries_left:
                raise (errors or [error])[0] from None


def empty(path: str) -> None:
    """Remove the content of a directory, as `remove` does."""
    errors: list[OSError] = []
    _empty(path, errors)
    if errors:
        raise errors[0]


def make(path: str) -> None:
    """Make a directory, replacing a file or link; give its owner all rights."""
    try:
        Path(path).mkdir()
    except FileExistsError:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            _unlock(path)
        else:
            Path(path).unlink()
            Path(path).mkdir()


def _empty(root: str, errors: list[OSError]) -> None:
    waiting = [root]
    directories: list[str] = []
    while waiting:
        directory = waiting.pop()
        directories.append(directory)
        below: list[str] = []
        with _noted(errors):
            _unlock(directory)
            below = _unlink_files(directory, errors)

        for path in below:
            with _noted(errors):
                waiting.append(_shortened(path, root))

    for directory in reversed(directories[1:]):
        with _noted(errors):
            os.rmdir(directory)  # noqa: PTH106 - as in `_unlink_files`


def _shortened(path: str, root: str) -> str:
    """Return a directory's path; move a deep directory to `root` first."""
    if len(os.fsencode(path)) <= _DEEP:
        return path

    _unlock(path)
    short = f"{root}/.deep-{os.lstat(path).st_ino}"
    Path(path).rename(short)
    return short


def _unlink_files(directory: str, errors: list[OSError]) -> list[str]:
    """Remove a directory's files and links; return its subdirectories."""
    with os.scandir(directory) as items:
        listing = list(items)

    below = []
    for item in listing:
        if item.is_dir(follow_symlinks=False):
            below.append(item.path)
            continue
        with _noted(errors):
            os.unlink(item.path)  # noqa: PTH108 - making a Path takes as long as the call

    return below


@contextlib.contextmanager
def _noted(errors: list[OSError]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        errors.append(error)


def _unlock(path: str) -> None:
    """Give a directory's owner all rights on it, if this process may."""
    with contextlib.suppress(OSError):
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
            Path(path).chmod(stat.S_IMODE(mode) | 0o700)
