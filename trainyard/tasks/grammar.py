"""The words of a command line, checked and completed before Invoke parses them.

Invoke knows only positional arguments that must be given, so `train.logs RUN` becomes `train.logs --run RUN`; one that
is a list takes every value: `cluster.scale gpu=3 cpu=1`. It accepts a list's flag without a value, and says of all that
it does not know "No idea what 'x' is!".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext

from trainyard.errors import RequestError
from trainyard.suggest import did_you_mean

Contexts = Mapping[str, ParserContext]
HELP = ("--help", "-h")


def checked(words: Iterable[str], contexts: Contexts, core: ParserContext) -> list[str]:
    """Return the words for Invoke, with `--run` before a RUN that has none. Raises RequestError."""
    line = CommandLine(contexts, core)
    taken = [token for word in words for token in line.take(word)]
    line.finish()
    return taken


def task_to_explain(words: Sequence[str], contexts: Contexts) -> str | None:
    """Return the task before `--help`, which Invoke would take for the job's directory in `train.dispatch --help`."""
    asked = next((words.index(word) for word in words if word in HELP), 0)
    return next((word for word in reversed(words[:asked]) if word in contexts), None)


class CommandLine:
    """The words so far: the task that they name, its flag that waits for a value, its arguments that may follow."""

    def __init__(self, contexts: Contexts, core: ParserContext) -> None:
        self._contexts = contexts
        self._core = core
        self._seen: set[str] = set()
        self.task: ParserContext | None = None
        self.flag: Argument | None = None
        self.arguments: list[Argument] = []
        self._written = ""

    def take(self, word: str) -> list[str]:
        """Return a word as Invoke has to get it. Raises RequestError if it cannot stand here."""
        if self.flag and (word == "-" or not word.startswith("-")):
            self._check_filled(word, self._written)
            self.flag = None
            return [word]
        self._check_value()
        if word.startswith("-"):
            return self._take_flags(word)
        return self._take_argument(word)

    def finish(self) -> None:
        """Raise RequestError if something is missing at the end."""
        self._check_value()
        missing = [one for one in self.arguments if one.default is None]
        if missing:
            raise self._wrong(f"{self._name} needs {_shown(missing[0])}")

    @property
    def _name(self) -> str:
        return str(self.task.name) if self.task else "invoke"

    def _take_flags(self, word: str) -> list[str]:
        name, is_assigned, value = word.partition("=")
        if not name.startswith("--") and len(name) > 2:
            first = self._find(name[:2])
            rest = [name[2:]] if first.takes_value else [f"-{letter}" for letter in name[2:]]
            return [token for part in (name[:2], *rest) for token in self.take(part)]
        found = self._find(name)
        if self.task and found.takes_value and found.kind is not list and found.names[0] in self._seen:
            raise self._wrong(f"{name} is given twice")
        self._seen.add(found.names[0])
        self.arguments = [one for one in self.arguments if one is not found or _is_list(one)]
        if is_assigned:
            self._check_filled(value, name)
        elif found.takes_value and not found.optional:
            self.flag, self._written = found, name
        return [word]

    def _find(self, name: str) -> Argument:
        for context in (self.task, self._core):
            if context and name in context.inverse_flags:
                name = context.inverse_flags[name]
            if context and name in context.flags:
                # Not .get(): it does not know the short names, which are aliases.
                return context.flags[name]  # type: ignore[no-any-return]
        if self.task is None:
            raise RequestError(f"{name} stands before the task", hint=f"Put it behind: invoke TASK {name}")
        known = [*self.task.flags, *self.task.inverse_flags]
        raise self._wrong(f"{self._name} has no flag {name}{did_you_mean(name, known)}")

    def _take_argument(self, word: str) -> list[str]:
        required = next((one for one in self.arguments if one.default is None), None)
        if required is None and word in self._contexts:
            self.task, self._seen = self._contexts[word], set()
            self.arguments = list(self.task.positional_args)
            return [word]
        if not self.arguments:
            meant = did_you_mean(word, self._contexts)
            what = f"{self._name} takes no {word!r}, and no" if self.task and not meant else "no"
            raise self._wrong(f"{what} task is called {word!r}{meant}")
        argument = required or self.arguments[0]
        self._check_filled(word, _shown(argument))
        if not _is_list(argument):
            self.arguments.remove(argument)
        return [word] if required else [f"--{argument.names[0]}", word]

    def _check_value(self) -> None:
        if self.flag:
            raise self._wrong(f"{self._written} needs a value")

    def _check_filled(self, value: str, name: str) -> None:
        if not value:
            raise self._wrong(f"{name} is empty: a variable that is not set?")

    def _wrong(self, what: str) -> RequestError:
        return RequestError(what, hint=f"invoke --help {self.task.name}" if self.task else "invoke --list")


def _shown(argument: Argument) -> str:
    return str(argument.names[0]).upper().replace("-", "_")


def _is_list(argument: Argument) -> bool:
    return bool(argument.kind is list)
