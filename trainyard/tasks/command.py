"""The decorator of every task: a letter means the same flag in all of them, and only flags that all share have one."""

from __future__ import annotations

from functools import partial
from typing import Any

from invoke import tasks
from invoke.context import Context

from trainyard.tasks import command_hints

LETTERS = {"file": "f", "set": "s", "backend": "b", "json": "j"}


class Command(tasks.Task[Any]):
    """A task whose flags get no letters but those."""

    def arg_opts(self, name: str, default: str, taken_names: set[str]) -> dict[str, Any]:
        """Return what Invoke makes of a parameter."""
        found = super().arg_opts(name, default, taken_names)
        letter = LETTERS.get(found["names"][0])
        return {**found, "names": [*found["names"], letter] if letter else found["names"]}

    def __call__(self, context: Context, **values: Any) -> Any:
        """Run it; the commands in messages repeat its flags."""
        command_hints.remember(f"{self.__module__.rpartition('.')[2]}.{self.name}", values)
        return super().__call__(context, **values)


task = partial(tasks.task, klass=Command, auto_shortflags=False)
