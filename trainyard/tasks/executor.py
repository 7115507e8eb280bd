"""Turn errors into messages and exit codes: the one place where that happens."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
import warnings
from typing import Any, NoReturn

from invoke.exceptions import Exit, ParseError, UnexpectedExit
from invoke.executor import Executor

from trainyard import signals
from trainyard.errors import InterruptedRunError, TrainyardError
from trainyard.tasks import report


class TrainyardExecutor(Executor):
    """Invoke's executor, with our exit codes."""

    def execute(self, *tasks: Any) -> Any:
        """Run the tasks; print an error as its parts, never a traceback without --debug."""
        signals.begin()
        # A CI system that ends us wants the same clean-up as Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # Said by us once, instead of by urllib3 at each request. A filter that comes later has Python say all again.
        warnings.filterwarnings("ignore", message="Unverified HTTPS request")
        warnings.showwarning = lambda message, *_where: report.note(f"warning: {message}")
        try:
            return self._execute(*tasks)
        except BrokenPipeError:
            # What reads our output has ended (`... | head`); Python would complain once more at exit.
            for stream in (sys.stdout, sys.stderr):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            raise Exit(code=0) from None

    def _execute(self, *tasks: Any) -> Any:
        try:
            done = self._execute_dry(*tasks) if self.config.run.dry else super().execute(*tasks)
            sys.stdout.flush()
            return done
        except (Exit, ParseError, UnexpectedExit, BrokenPipeError):
            raise
        except TrainyardError as error:
            _leave(error)
        except KeyboardInterrupt:
            _leave(InterruptedRunError("interrupted"))
        except Exception as error:
            what = f"a bug in trainyard: {type(error).__name__}: {error}"
            _leave(TrainyardError(what, hint=_where_to_report()))

    def _execute_dry(self, *tasks: Any) -> Any:
        """Run the tasks; what a run says meanwhile is not recorded, and what tools cache is removed again."""
        from trainyard.results import store

        store.read_only.set(True)
        with tempfile.TemporaryDirectory(prefix="trainyard-dry-") as cache:
            os.environ["XDG_CACHE_HOME"] = cache
            return super().execute(*tasks)


def _where_to_report() -> str:
    """Return what to do about a bug. Trainyard is on no index: it came from a repository, a checkout or a wheel."""
    from trainyard.seams import installed

    source = installed.source()
    where = f" ({source})" if source else ""
    return f"Report what the command prints with --debug to those from whom you have Trainyard{where}."


def _leave(error: TrainyardError) -> NoReturn:
    if "--debug" in sys.argv or "-d" in sys.argv:
        traceback.print_exc()
    report.fail(error)
    raise Exit(code=error.exit_code)
