"""Files and command lines of other tools, as jobs and cluster files of Trainyard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainyard.errors import RequestError
from trainyard.importing import clusters, command_line, foreign, job_cfg, shell, task_runner
from trainyard.importing.cluster_files import convert as convert_cluster
from trainyard.importing.cluster_files import of_context
from trainyard.importing.clusters import Clusters
from trainyard.importing.job import Imported, Options, refuse_unreadable

__all__ = ["Clusters", "Imported", "Options", "convert", "convert_cluster", "of_context"]


def convert(file: Path | None, words: Sequence[str], options: Options) -> Imported | Clusters:
    """Return what a file or a command line describes; files that a line names are relative to where it stands.

    Raises RequestError.
    """
    if (file is None) == (not words):
        raise RequestError("name one thing to import: a file, or a command line behind `--`")
    if file is None:
        return command_line.read(words, options, name="aggregate", directory=Path.cwd())
    refuse_unreadable(file)
    if file.suffix == ".py":
        return job_cfg.read(file, options)
    if file.suffix in (".yaml", ".yml"):
        foreign.refuse(file)
        return task_runner.read(file, python=options.python)
    try:
        text = file.read_text()
        if found := clusters.read(text, name=file.name):
            return found
        lines = shell.commands(text)
    except (OSError, ValueError) as error:
        raise RequestError(f"{file} cannot be read: {error}") from error
    return command_line.of_file(lines, options, file)
