"""Turn errors of tasks into messages and exit codes."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any, NoReturn

from invoke.exceptions import Exit, ParseError, UnexpectedExit
from invoke.executor import Executor

from trainyard.console import report, signals
from trainyard.errors import InterruptedRunError, OutsideError, PrerequisiteError, TrainyardError
from trainyard.paths import cache_home, not_writable, state_home

_FULL = {errno.ENOSPC, errno.EDQUOT}
_UNUSABLE = {errno.EACCES, errno.EPERM, errno.EROFS, *_FULL}
# The path has a file or link in place of a directory, or a name is too long.
_NO_DIRECTORY = {errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG}


class TrainyardExecutor(Executor):
    """Invoke's executor, with Trainyard's exit codes."""

    def execute(self, *tasks: Any) -> Any:
        """Run the tasks; print errors, with a traceback only for --debug."""
        signals.begin()
        let_streams_take_all()
        # A CI system ends a process by SIGTERM: clean up as after Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # urllib3 would repeat this warning at each request; a backend prints it once. The filter is
        # set before any warning, because a new filter makes Python repeat earlier warnings.
        warnings.filterwarnings("ignore", message="Unverified HTTPS request")
        warnings.showwarning = lambda message, *_where: report.note(f"warning: {message}")

        try:
            return self._execute(*tasks)
        except BrokenPipeError:
            # The output's reader has ended (`... | head`), and Python would report that at exit.
            for stream in (sys.stdout, sys.stderr):
                report.turn_away(stream)
            raise Exit(code=0) from None

    def _execute(self, *tasks: Any) -> Any:
        try:
            if self.config.run.dry:
                done = self._execute_dry(*tasks)
            else:
                done = super().execute(*tasks)
            sys.stdout.flush()
            return done
        except (Exit, ParseError, UnexpectedExit, BrokenPipeError):
            raise
        except TrainyardError as error:
            _leave(error)
        except KeyboardInterrupt:
            _leave(InterruptedRunError("interrupted"))
        except OSError as error:
            _leave(_explained(error) or _bug(error))
        except Exception as error:
            _leave(_bug(error))

    def _execute_dry(self, *tasks: Any) -> Any:
        """Run the tasks; results/ is only read, and caches are temporary."""
        from trainyard.results import store

        store.read_only.set(True)
        with tempfile.TemporaryDirectory(prefix="trainyard-dry-") as cache:
            os.environ["XDG_CACHE_HOME"] = cache
            return super().execute(*tasks)


class _Messages(io.TextIOWrapper):
    """A stderr that drops messages on a full disk instead of failing."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            raise
        except OSError:
            report.turn_away(self)
            return len(text)


def let_streams_take_all() -> None:
    """Make stdout and stderr accept any text.

    Characters that the terminal lacks are replaced. A closed stream drops
    everything, as does a stderr on a full disk.
    """
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115 - never closed
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    if type(sys.stderr) is io.TextIOWrapper:
        same = open(sys.stderr.fileno(), "wb", closefd=False)  # noqa: SIM115
        sys.stderr = _Messages(same, encoding=sys.stderr.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        # `reconfigure` raises OSError if the stream's file was replaced by a pipe.
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):
                stream.reconfigure(errors="replace")


def unusable(error: OSError) -> NoReturn:
    """Exit with the error of a file or stream that Invoke uses outside a task.

    Examples are Invoke's configuration file, and stdout when Invoke prints its
    help.
    """
    explained = _explained(error) or PrerequisiteError(
        f"{error.filename} cannot be used: {error.strerror}"
    )
    report.fail(explained)
    sys.exit(explained.exit_code)


def _explained(error: OSError) -> TrainyardError | None:
    """Explain a directory that is gone, an unusable file, or a full disk.

    Returns None for other errors. Nothing is printed to a full stdout any more.
    """
    if error.errno == errno.ENOENT and error.filename is None and not _current_directory_exists():
        return PrerequisiteError(
            "the directory of this shell is gone", hint="Change into another one: cd ~"
        )
    if error.errno not in _UNUSABLE | _NO_DIRECTORY:
        return None

    if error.filename is None:
        if error.errno not in _FULL:
            return None
        # The error of a failed write names no file: the write may have been to stdout.
        try:
            sys.stdout.flush()
        except OSError:
            report.turn_away(sys.stdout)
        where = f"stdout, or a file below {state_home(os.environ)} or the results"
        return OutsideError(f"this command cannot write: {error.strerror}", where=where)

    path = Path(os.fsdecode(error.filename))
    homes = {
        "XDG_STATE_HOME": state_home(os.environ),
        "XDG_CACHE_HOME": cache_home(os.environ),
    }
    for name, home in homes.items():
        # The error may name the home itself, a path in it, or a directory above it.
        if path.is_relative_to(home) or home.is_relative_to(path):
            return not_writable(home, error, variable=name)

    if error.errno in _NO_DIRECTORY:
        return None

    return PrerequisiteError(f"{path} cannot be used: {error.strerror}")


def _current_directory_exists() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - called only to see whether it fails
    except OSError:
        return False
    return True


def _bug(error: Exception) -> TrainyardError:
    from trainyard.seams import installed

    source = installed.source()
    where = f" ({source})" if source else ""
    return TrainyardError(
        f"a bug in trainyard: {type(error).__name__}: {error}",
        hint=f"Report the command's output with --debug to your source of Trainyard{where}.",
    )


def _leave(error: TrainyardError) -> NoReturn:
    if "--debug" in sys.argv or "-d" in sys.argv:
        traceback.print_exc()
    report.fail(error)
    raise Exit(code=error.exit_code)
