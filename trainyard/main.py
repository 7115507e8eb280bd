"""The console command `trainyard`: the same tasks without a tasks.py."""

from __future__ import annotations

from invoke.program import Program

from trainyard import __version__
from trainyard.tasks import namespace
from trainyard.tasks.executor import TrainyardExecutor


def main() -> None:
    """Run the command line."""
    Program(name="trainyard", version=__version__, namespace=namespace, executor_class=TrainyardExecutor).run()
