"""The console command `trainyard`: the same tasks without a tasks.py."""

from __future__ import annotations

from trainyard import __version__, early


def main() -> None:
    """Run the command line."""
    early.end_quietly()
    from invoke.program import Program

    from trainyard.tasks import namespace
    from trainyard.tasks.executor import TrainyardExecutor

    Program(name="trainyard", version=__version__, namespace=namespace, executor_class=TrainyardExecutor).run()
