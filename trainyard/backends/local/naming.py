"""The paths of a local cluster's files, which have modes 0700 and 0600."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from trainyard_runner.wire import tree

from trainyard.errors import LeftoverError, OutsideError

# The path must be short: a UNIX socket's path has at most 107 bytes (unix(7)), 64 of them Ray's.
TEMP_PARENT = "/tmp"  # noqa: S108 (the directory below is this user's: see private_directory)


@dataclass(frozen=True)
class ClusterFiles:
    """One cluster's files: Trainyard writes below `state`, Ray below `temp`."""

    state: Path

    @property
    def token(self) -> Path:
        return self.state / "token"

    @property
    def nodes(self) -> Path:
        return self.state / "nodes"

    @property
    def key(self) -> str:
        """Return a short name that is unique on this machine."""
        return hashlib.sha256(str(self.state.absolute()).encode()).hexdigest()[:8]

    @property
    def temp(self) -> Path:
        return Path(TEMP_PARENT) / f"trainyard-{os.getuid()}" / self.key

    def node_temp(self, name: str) -> Path:
        return self.temp / hashlib.sha256(name.encode()).hexdigest()[:6]

    def ray_logs(self, name: str) -> Path:
        return self.node_temp(name) / "session_latest" / "logs"

    def node_log(self, name: str) -> Path:
        return self.nodes / f"{name}.log"

    def node_record(self, name: str) -> Path:
        return self.nodes / f"{name}.json"

    def marker(self, name: str | None = None) -> str:
        """Return the mark in a node's environment.

        Without a name, this is the prefix of all marks.
        """
        if name is None:
            return f"{self.key}/"
        return f"{self.key}/{name}/"

    def prepare(self) -> None:
        self.nodes.mkdir(parents=True, exist_ok=True, mode=0o700)
        for directory in (self.state, self.nodes):
            directory.chmod(0o700)
        private_directory(self.temp.parent)
        private_directory(self.temp)

    def forget(self, name: str) -> None:
        """Remove a node's files; LeftoverError if that fails."""
        _remove(self.node_temp(name))
        self.node_record(name).unlink(missing_ok=True)
        self.node_log(name).unlink(missing_ok=True)

    def remove(self) -> None:
        _remove(self.temp)
        _remove(self.state)


def private_directory(path: Path) -> None:
    """Make a directory for this user alone, or raise OutsideError."""
    path.mkdir(mode=0o700, exist_ok=True)
    made = path.lstat()
    if not stat.S_ISDIR(made.st_mode) or made.st_uid != os.getuid() or made.st_mode & 0o077:
        raise OutsideError(
            f"{path} is not a directory that only you can use",
            hint="Remove it, or find out who made it.",
        )


def _remove(directory: Path) -> None:
    try:
        tree.remove(str(directory))
    except OSError as error:
        raise LeftoverError(
            f"not all of {directory} can be removed: {error.filename}: {error.strerror}",
            hint="Repeat the same command once the cause is gone, such as another user's "
            "file or a mount.",
        ) from error
