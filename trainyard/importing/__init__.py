"""Convert other tools' files and command lines to jobs and cluster files."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainyard.errors import RequestError
from trainyard.importing import clusters, command_line, job_cfg, shell, task_runner
from trainyard.importing.cluster_files import convert as convert_cluster
from trainyard.importing.cluster_files import of_context
from trainyard.importing.clusters import Clusters
from trainyard.importing.job import Imported, Options, refuse_unreadable
from trainyard.spec import foreign
from trainyard.wording import did_you_mean

__all__ = ["Clusters", "Imported", "Options", "convert", "convert_cluster", "of_context", "try_out"]


_READ = (
    "train.import reads a file of task_runner (`tasks:` at its top), a cfg file of tuner (.py), "
    "a ~/.cluster_config, "
    "and command lines: behind `--`, or in a file."
)


def _refuse_other_yaml(file: Path) -> None:
    """Raise RequestError for a YAML file that is not one of task_runner.

    Such a file is of a known other tool, or has no key of task_runner. A
    misspelt key counts as a key, because a later check reports it.
    """
    documents = foreign.documents_of(file)
    kind = foreign.kind_of(documents)
    if kind is not None:
        raise RequestError(
            f"{file} is {kind.name}: train.import reads files of Isaac Lab", hint=kind.remedy
        )
    known = task_runner.TaskRunnerFile.model_fields
    for document in documents:
        keys = map(str, document) if isinstance(document, dict) else ()
        if not any(key in known or did_you_mean(key, known) for key in keys):
            raise RequestError(f"{file} is not a file for Isaac Lab's task_runner", hint=_READ)


def convert(file: Path | None, words: Sequence[str], options: Options) -> Imported | Clusters:
    """Convert a file or a command line into a job or cluster files.

    Give either `file` or `words`. Paths in `words` are relative to the current
    directory. Raises RequestError.
    """
    if (file is None) == (not words):
        raise RequestError("name one thing to import: a file, or a command line behind `--`")
    if file is None:
        return command_line.read(words, options, name="aggregate", directory=Path.cwd())

    refuse_unreadable(file)
    if file.suffix == ".py":
        return job_cfg.read(file, options)
    if file.suffix in (".yaml", ".yml"):
        _refuse_other_yaml(file)
        return task_runner.read(file, python=options.python)

    try:
        text = file.read_text()
        if found := clusters.read(text, name=file.name):
            return found
        lines = shell.commands(text)
    except (OSError, ValueError) as error:
        raise RequestError(f"{file} cannot be read: {error}") from error

    return command_line.of_file(lines, options, file)


def try_out(found: Imported | Clusters) -> None:
    """Write into a temporary directory, for --dry. Raises `write`'s errors."""
    with tempfile.TemporaryDirectory(prefix="trainyard-") as scratch:
        directory = Path(scratch, "made")
        try:
            found.write(directory)
        except RequestError as error:
            # The user does not know the temporary directory, so the error leaves it out.
            problems = []
            for each in error.problems:
                problems.append(replace(each, where=each.where.replace(f"{directory}/", "")))
            raise RequestError(
                error.what, where=error.where, hint=error.hint, problems=tuple(problems)
            ) from error
