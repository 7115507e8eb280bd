"""Directory trees by descriptor: no recursion, no link followed, any depth, paths of any length.

The guard imports it while a task waits: no `shutil`, no `dataclasses` (10 ms each).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_TRIES = 3


class Cursor:
    """One open directory that moves through the tree below a root, with two descriptors at any
    depth.

    The way up is "..", believed only if it is where the cursor came from; else it walks again from
    the root.
    """

    def __init__(self, root: str, *, dir_fd: int | None = None) -> None:
        """Open the root, which must be a directory and no link."""
        self.root = os.open(root, _DIRECTORY, dir_fd=dir_fd)
        self.descriptor = os.dup(self.root)
        self._names: list[str] = []
        self._identities = [_identity(self.root)]

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)
        os.close(self.root)

    def to(self, path: str, *, make: bool = False) -> int:
        """Go to a directory below the root, named without "..", and return its descriptor.

        With `make`, what is missing on the way is made, and a file or link that stands there is
        replaced.
        """
        names = path.split("/") if path else []
        if names != self._names:
            common = min(len(names), len(self._names))
            while names[:common] != self._names[:common]:
                common -= 1

            if common < len(self._names) - common:
                self._restart(common)

            while len(self._names) > common:
                self.up()

            for name in names[common:]:
                if make:
                    _make_directory(name, self.descriptor)
                self.enter(name)

        return self.descriptor

    def enter(self, name: str) -> None:
        self._open(name)
        self._names.append(name)
        self._identities.append(_identity(self.descriptor))

    def up(self) -> str:
        """Go to the directory above; return the name of the one that was left."""
        self._identities.pop()
        left = self._names.pop()
        with contextlib.suppress(OSError):  # a directory without the right to search it
            self._open("..")
            if _identity(self.descriptor) == self._identities[-1]:
                return left
        self._restart(len(self._names))
        return left

    def _restart(self, depth: int) -> None:
        names = self._names[:depth]
        self._names = []
        del self._identities[1:]
        os.dup2(self.root, self.descriptor, inheritable=False)
        for name in names:
            self.enter(name)

    def _open(self, name: str) -> None:
        opened = os.open(name, _DIRECTORY, dir_fd=self.descriptor)
        os.close(self.descriptor)
        self.descriptor = opened


def files(root: str) -> Iterator[str]:
    """Yield the files below a directory that can be opened by their path; links are none of
    them.
    """
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(f"{root}/{inside}") as items:
            for item in items:
                if item.is_dir(follow_symlinks=False):
                    waiting.append(f"{inside}{item.name}/")
                elif item.is_file(follow_symlinks=False) and os.access(item.path, os.R_OK):
                    yield f"{inside}{item.name}"


def remove(path: str, *, dir_fd: int | None = None) -> None:
    """Remove a file, a link, or a directory with all that is in it, locked or not; nothing there is
    fine.

    What cannot be removed does not keep the rest; the first such error is raised at the end.
    """
    for tries_left in reversed(range(_TRIES)):  # a process may still write into it
        errors: list[OSError] = []
        try:
            mode = os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return

        try:
            if stat.S_ISDIR(mode):
                _empty(path, dir_fd, errors)
                os.rmdir(path, dir_fd=dir_fd)
            else:
                os.unlink(path, dir_fd=dir_fd)
        except OSError as error:
            if not tries_left:
                raise (errors or [error])[0] from None


def empty(path: str) -> None:
    """Remove all that is in a directory, locked or not. Raises the first error."""
    errors: list[OSError] = []
    _empty(path, None, errors)
    if errors:
        raise errors[0]


def _empty(path: str, dir_fd: int | None, errors: list[OSError]) -> None:
    _unlock(path, dir_fd)
    with Cursor(path, dir_fd=dir_fd) as cursor:
        waiting = [_unlink_files(cursor.descriptor, errors)]
        while waiting:
            if waiting[-1]:
                name = waiting[-1].pop()
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=cursor.descriptor)
                    continue

                with _noted(errors):
                    _unlock(name, cursor.descriptor)
                    cursor.enter(name)
                    waiting.append([])
                    waiting[-1] = _unlink_files(cursor.descriptor, errors)

                continue

            waiting.pop()
            if waiting:
                name = cursor.up()
                with _noted(errors):
                    os.rmdir(name, dir_fd=cursor.descriptor)


def _unlink_files(directory: int, errors: list[OSError]) -> list[str]:
    """Remove what is no directory; return the names of the directories."""
    below = []
    with os.scandir(directory) as items:
        listing = list(items)
        for item in listing:
            if item.is_dir(follow_symlinks=False):
                below.append(item.name)
                continue
            with _noted(errors):
                os.unlink(item.name, dir_fd=directory)
    return below


@contextlib.contextmanager
def _noted(errors: list[OSError]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        errors.append(error)


def _make_directory(name: str, dir_fd: int) -> None:
    """Make a directory that its owner can use, whatever stands there; one that stands there
    stays.
    """
    try:
        os.mkdir(name, dir_fd=dir_fd)
    except FileExistsError:
        if stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
            _unlock(name, dir_fd)
        else:
            os.unlink(name, dir_fd=dir_fd)
            os.mkdir(name, dir_fd=dir_fd)


def _unlock(name: str, dir_fd: int | None) -> None:
    """Give a directory's owner all rights on it, where we may; a link is not followed."""
    with contextlib.suppress(OSError):
        mode = os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode) or mode & 0o700 == 0o700:
            return
        if not hasattr(os, "O_PATH"):  # macOS has another way
            os.chmod(name, mode | 0o700, dir_fd=dir_fd, follow_symlinks=False)
            return

        # Linux before 6.6 has no chmod that stops at a link: a descriptor that needs no right on it
        # stands for it.
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=dir_fd)
        try:
            Path(f"/proc/self/fd/{descriptor}").chmod(stat.S_IMODE(mode) | 0o700)
        finally:
            os.close(descriptor)


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino
