"""The console command `trainyard`."""

from __future__ import annotations

import logging
import sys

from trainyard.console.signals import end_quietly


def main() -> None:
    """Run the command line in sys.argv, and exit with its code."""
    end_quietly()
    # With --debug, Invoke would log hundreds of lines about itself.
    logging.getLogger("invoke").setLevel(logging.WARNING)
    from invoke.program import Program

    from trainyard import __version__
    from trainyard.tasks import executor, namespace

    program = Program(
        name="trainyard",
        version=__version__,
        namespace=namespace,
        executor_class=executor.TrainyardExecutor,
    )

    executor.let_streams_take_all()
    # An OSError outside a task comes from Invoke's configuration, the help, or the last flush.
    try:
        try:
            program.run()
        finally:
            sys.stdout.flush()
    except OSError as error:
        executor.unusable(error)
