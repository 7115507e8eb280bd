"""Begin a project."""

from __future__ import annotations

import shlex
from pathlib import Path

from invoke.context import Context

from trainyard.tasks.command import task


@task(
    positional=["directory"],
    help={"directory": "Where to (default: here); it is made if it is not there.", "json": "Print one JSON document."},
)
def init(context: Context, directory: str = ".", json: bool = False) -> None:
    """Write a project: a cluster file, a job that runs, a CI workflow that runs it. Overwrites nothing."""
    from trainyard import project
    from trainyard.tasks.output import print_json, print_next, say

    contents = project.contents(Path(directory))
    if not context.config.run.dry:
        project.write(contents)
    if json:
        print_json({"directory": directory, "files": [str(path) for path in contents]})
        return
    say("\n".join(str(path) for path in contents))
    there = "" if directory == "." else f"cd {shlex.quote(directory)} && "
    print_next(f"{there}trainyard cluster.up")
