"""Run programs to their end; Ctrl-C ends a program's whole process group."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from trainyard.errors import PrerequisiteError

# The time for a program to clean up after Ctrl-C, before it is killed.
GRACE_SECONDS = 10.0
TAIL_LINES = 200
# A shell's exit code for a program that is not installed.
NOT_FOUND = 127


@dataclass(frozen=True)
class Ran:
    """The result of a command on a host or in a container."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Ended:
    """The result of a program; `tail` has the last lines of all its output."""

    code: int
    tail: tuple[str, ...]


def find(name: str, environ: Mapping[str, str], *, hint: str) -> str:
    """Return an installed program's path. Raises PrerequisiteError."""
    path = shutil.which(name, path=environ.get("PATH"))
    if path is None:
        raise PrerequisiteError(f"{name} is not installed", hint=hint)
    return path


def become(command: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by a program.

    Raises PrerequisiteError if the program is not installed.
    """
    path = find(
        command[0], environ, hint=f"Install it, or run this where it is: {shlex.join(command)}"
    )
    # Exit handlers remove temporary key files. Python ignores SIGPIPE, which the program would
    # inherit.
    atexit._run_exitfuncs()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execve(path, list(command), dict(environ))  # noqa: S606


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: bytes | Callable[[IO[bytes]], None] = b"",
    directory: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    seconds: float | None = None,
) -> Ended:
    """Run a program; end its process group on Ctrl-C or after `seconds`.

    `stdin` is the input, or a function that writes an input too large for
    memory; its error is raised here once the program has ended. `on_line` gets
    each line of output; if it raises, the group ends, too. A program that ran
    longer than `seconds` has the exit code -2 (SIGINT), unless it handles
    SIGINT, or -9 if SIGKILL was needed. A program that is not installed has the
    exit code NOT_FOUND.
    """
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    errors: list[Exception] = []

    try:
        process = subprocess.Popen(
            list(command),
            env=dict(env),
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # In its own process group, the program does not get Ctrl-C from the terminal, but one
            # SIGINT from this process.
            start_new_session=True,
        )
    except FileNotFoundError:
        return Ended(NOT_FOUND, ())

    threading.Thread(target=_feed, args=(process, stdin, errors), daemon=True).start()
    timer = threading.Timer(seconds or threading.TIMEOUT_MAX, end, [process])
    timer.daemon = True
    timer.start()

    try:
        for raw in process.stdout or ():
            line = raw.decode(errors="replace").rstrip("\r\n")
            tail.append(line)
            if on_line:
                on_line(line)
        code = process.wait()
    except BaseException:
        end(process)
        raise
    finally:
        timer.cancel()

    if errors:
        raise errors[0]
    return Ended(code, tuple(tail))


def _feed(
    process: subprocess.Popen[bytes],
    content: bytes | Callable[[IO[bytes]], None],
    errors: list[Exception],
) -> None:
    """Write the input, and close it; a program need not read all of it."""
    if not process.stdin:
        return
    with suppress(BrokenPipeError), process.stdin as pipe:
        try:
            if isinstance(content, bytes):
                pipe.write(content)
            else:
                content(pipe)
        except BrokenPipeError:
            return
        except Exception as error:
            # End the program before its input is closed: it must not take a part for the whole.
            errors.append(error)
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a program's process group, then kill what does not end."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    # Some of the group may be left, such as background jobs of a shell, which ignore SIGINT.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
