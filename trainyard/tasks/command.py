"""The part that all tasks share: common flags and their letters, --json, --dry, printing."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke import tasks
from invoke.context import Context

from trainyard import paths
from trainyard.console import command_hints, report
from trainyard.console.report import Report
from trainyard.paths import Here
from trainyard.tasks import lazy

if TYPE_CHECKING:
    from trainyard.importing.clusters import Clusters
    from trainyard.importing.job import Imported
    from trainyard.operations.cluster import Cluster
    from trainyard.steps import Progress

# A letter means the same flag in all tasks, and only flags that most of them have get one.
LETTERS = {"file": "f", "set": "s", "backend": "b", "json": "j"}
FILE = "Cluster file, or a bare name of clusters/ (default: $TRAINYARD_CLUSTER, else local)."
# Flags of many tasks: default and help.
SHARED: dict[str, tuple[Any, str]] = {
    "file": (None, FILE),
    "set_": (
        None,
        "Set one value of the file: PATH=VALUE, such as workers.0.count=2; may be repeated.",
    ),
    "backend": ("", "Use another backend than the file names."),
    "json": (False, "Print one JSON document on stdout; everything else goes to stderr."),
}
REGISTRY = ("file", "set_")
CLUSTER = (*REGISTRY, "backend")


def words_behind_dashes() -> list[str]:
    """Return the words behind `--`: a command line of another tool. Invoke joins them by blanks."""
    if "--" in sys.argv:
        return sys.argv[sys.argv.index("--") + 1 :]
    return []


def import_report(call: Call, found: Imported | Clusters, output: str) -> Report:
    """Write files that were imported, or only try them with --dry, and show them."""
    written = []
    if call.dry:
        lazy.importing.try_out(found)
    else:
        directory = Path(output) if output else None
        written = [paths.shown(path) for path in found.write(directory)]

    return Report(
        {"text": found.text, "written": written},
        [found.text.rstrip()],
        notes=found.notes,
        next=" ".join([found.next, *written[:1]]) if written else "",
    )


@dataclass(frozen=True)
class Call:
    """How a task was called, by the flags that many tasks share."""

    task: str
    summary: str
    dry: bool = False
    json: bool = False
    file: str | None = None
    overrides: tuple[str, ...] = ()
    backend: str | None = None

    @property
    def progress(self) -> Progress:
        return lazy.progress.for_stream()

    @property
    def here(self) -> Here:
        return Here(os.environ, Path.cwd())

    def cluster(self) -> Cluster:
        """Return the cluster that the flags mean. Raises RequestError."""
        here = self.here
        return lazy.clusters.find(
            self.file,
            here.environ,
            directory=here.directory,
            overrides=self.overrides,
            backend=self.backend,
        )

    def skipped(self, about: str = "") -> Report:
        """Say what the task would do, for --dry."""
        what = self.summary
        if about:
            what += f" ({about})"
        return Report(
            {"would": self.task, "about": what},
            [f"would: {what}"],
            notes=["nothing was done (--dry)"],
        )


class Command(tasks.Task[Any]):
    """A task of Trainyard: its function gets a Call and its own flags, and returns a Report."""

    def __init__(
        self,
        body: Callable[..., Report | None],
        *,
        shared: tuple[str, ...],
        dry: bool,
        **options: Any,
    ) -> None:
        self._shared = (*shared, "json")
        self._runs_dry = dry
        texts = {name: SHARED[name][1] for name in self._shared}
        options["help"] = {**texts, **options.get("help", {})}
        options["iterable"] = ["set_", *options.get("iterable", ())]
        super().__init__(body, auto_shortflags=False, **options)

    def argspec(self, body: Callable[..., Any]) -> inspect.Signature:
        own = list(inspect.signature(body).parameters.values())[1:]
        kind = inspect.Parameter.KEYWORD_ONLY
        shared = [inspect.Parameter(name, kind, default=SHARED[name][0]) for name in self._shared]
        return inspect.Signature([*own, *shared])

    def arg_opts(self, name: str, default: str, taken_names: set[str]) -> dict[str, Any]:
        options = super().arg_opts(name, default, taken_names)
        letter = LETTERS.get(options["names"][0])
        if letter is None:
            return options
        return {**options, "names": [*options["names"], letter]}

    def __call__(self, context: Context, /, **values: Any) -> None:
        """Run the task, and print its Report; the commands in messages repeat its flags."""
        if self.name == "init":
            name = self.name
        else:
            name = f"{self.__module__.rpartition('.')[2]}.{self.name}"

        command_hints.remember(name, values)
        shared = {flag: values.pop(flag) for flag in self._shared if flag in values}
        call = Call(
            name,
            (self.__doc__ or name).splitlines()[0],
            dry=bool(context.config.run.dry),
            json=bool(shared.get("json")),
            file=shared.get("file"),
            overrides=tuple(shared.get("set_") or ()),
            backend=shared.get("backend") or None,
        )

        report.begin(json=call.json)
        if call.dry and not self._runs_dry:
            result = call.skipped()
        else:
            result = self.body(call, **values)

        self.times_called += 1
        if result is not None:
            report.show(result, json=call.json)


def task(
    *shared: str, dry: bool = False, **options: Any
) -> Callable[[Callable[..., Report | None]], Command]:
    """Make a task of a function; `shared` are the flags of many tasks that it has besides --json.

    With `dry` it is run with --dry too, since it only reads or asks `call.dry` itself; any other is
    not run then.
    """
    return lambda body: Command(body, shared=shared, dry=dry, **options)
