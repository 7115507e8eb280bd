"""Turn errors into messages and exit codes: the one place where that happens."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
import warnings
from types import FrameType
from typing import Any, NoReturn

from invoke.exceptions import Exit, ParseError, UnexpectedExit
from invoke.executor import Executor

from trainyard import early
from trainyard.errors import TrainyardError
from trainyard.tasks.command_hints import complete
from trainyard.tasks.dry import only_said
from trainyard.tasks.output import say

BUG = 70
INTERRUPTED = 130


class TrainyardExecutor(Executor):
    """Invoke's executor, with our exit codes (design.md, section 9)."""

    def execute(self, *tasks: Any) -> Any:
        """Run the tasks; print an error as its parts, never a traceback without --debug."""
        early.begin()
        signal.signal(signal.SIGTERM, _interrupt)
        warnings.showwarning = _warn  # type: ignore[assignment]
        try:
            return self._execute(*tasks)
        except BrokenPipeError:
            # Whoever read our output has gone (`... | head`); Python would complain once more at exit.
            for stream in (sys.stdout, sys.stderr):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            raise Exit(code=0) from None

    def _execute(self, *tasks: Any) -> Any:
        try:
            found = self._execute_dry(*tasks) if self.config.run.dry else super().execute(*tasks)
            sys.stdout.flush()
            return found
        except (Exit, ParseError, UnexpectedExit, BrokenPipeError):
            raise
        except TrainyardError as error:
            _leave(error.lines(), code=error.exit_code)
        except KeyboardInterrupt:
            _leave(["interrupted"], code=INTERRUPTED)
        except Exception as error:
            _leave(
                [
                    f"a bug in trainyard: {type(error).__name__}: {error}",
                    "  -> Repeat the command with --debug (invoke --debug cluster.up ...) and report what it prints.",
                ],
                code=BUG,
            )

    def _execute_dry(self, *tasks: Any) -> Any:
        """Run the tasks that change nothing; say what the others would do. What tools cache is removed again."""
        from trainyard.results import store

        store.read_only.set(True)
        left = [one for one in tasks if not only_said(one, self.collection)]
        with tempfile.TemporaryDirectory(prefix="trainyard-dry-") as cache:
            os.environ["XDG_CACHE_HOME"] = cache
            return super().execute(*left) if left else {}


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    """Treat SIGTERM as Ctrl-C: a CI system that ends us wants the same clean-up."""
    raise KeyboardInterrupt


def _warn(message: Warning | str, *_where: object) -> None:
    """Print a warning without the line of code that it comes from."""
    say(f"warning: {message}", file=sys.stderr)


def _leave(lines: list[str], *, code: int) -> NoReturn:
    if "--debug" in sys.argv or "-d" in sys.argv:
        traceback.print_exc()
    message = "\n".join([f"error: {lines[0]}", *lines[1:]])
    say(complete(message), file=sys.stderr)
    raise Exit(code=code)
