"""The words of a command line, checked and completed before Invoke parses them.

Invoke knows only positional arguments that must be given, so `train.logs RUN` becomes `train.logs --run RUN`; one that
is a list takes every value: `cluster.scale gpu=3 cpu=1`. It accepts a list's flag without a value, says of all that it
does not know "No idea what 'x' is!", and exits 1 for it, which here means "the job ran and failed". It has no setting
for that, and its own `invoke` command cannot be given another Program: its parsing steps are wrapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import Any

from invoke.exceptions import Exit, ParseError
from invoke.parser import Parser
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.program import Program

from trainyard.errors import RequestError
from trainyard.tasks import report
from trainyard.wording import did_you_mean

Contexts = Mapping[str, ParserContext]
HELP = ("--help", "-h")


def extend_invoke() -> None:
    """Extend Invoke's parsing of tasks and flags, once."""
    if hasattr(Program.parse_tasks, "__wrapped__"):
        return
    for name, extension in (
        ("parse_tasks", _parse_tasks),
        ("_make_parser", _make_parser),
        ("parse_cleanup", _parse_cleanup),
    ):
        setattr(Program, name, _extended(getattr(Program, name), extension))


def _extended(original: Callable[..., Any], extension: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def method(program: Program, *arguments: Any) -> Any:
        return extension(program, partial(original, program), *arguments)

    return method


def _parse_tasks(program: Program, parse: Callable[[], None]) -> None:
    try:
        if early := program.args.config.value:
            # Before a task, -f is Invoke's own configuration file.
            raise RequestError(f"-f {early} stands before the task", hint=f"Put it behind: invoke TASK -f {early}")
        parse()
    except (ParseError, RequestError) as error:
        raise _refusal(error, program) from error


def _make_parser(program: Program, make: Callable[[], Parser]) -> Parser:
    parser = make()
    explained = task_to_explain(program.core.unparsed, parser.contexts)
    if explained:
        program.core[0].args["help"].value, program.core.unparsed = explained, []
    program.core.unparsed = checked(program.core.unparsed, parser.contexts, program.initial_context)
    return parser


def _parse_cleanup(program: Program, clean_up: Callable[[], None]) -> None:
    task, contexts = program.args.help.value, program.parser.contexts
    if isinstance(task, str) and task not in contexts:
        meant = did_you_mean(task, contexts)
        raise _refusal(RequestError(f"no task is called {task!r}{meant}", hint="invoke --list"), program)
    if program.args.complete.value:
        from trainyard.tasks import completion

        report.say("\n".join(completion.candidates(program.core.remainder, contexts)))
        raise Exit
    clean_up()


def checked(words: Iterable[str], contexts: Contexts, core: ParserContext) -> list[str]:
    """Return the words for Invoke, with `--run` before a RUN that has none. Raises RequestError."""
    line = CommandLine(contexts, core)
    taken = [token for word in words for token in line.take(word)]
    line.finish()
    return taken


def task_to_explain(words: Sequence[str], contexts: Contexts) -> str | None:
    """Return the task before `--help`, which Invoke would take for the job's directory in `train.dispatch --help`."""
    position = next((words.index(word) for word in words if word in HELP), 0)
    return next((word for word in reversed(words[:position]) if word in contexts), None)


class CommandLine:
    """The words so far: the task that they name, its flag that waits for a value, its arguments that may follow."""

    def __init__(self, contexts: Contexts, core: ParserContext) -> None:
        self._contexts = contexts
        self._core = core
        self._flag_as_given = ""
        self.task: ParserContext | None = None
        self.flag: Argument | None = None
        self.arguments: list[Argument] = []

    def take(self, word: str) -> list[str]:
        """Return a word as Invoke has to get it. Raises RequestError if it cannot stand here."""
        if self.flag and (word == "-" or not word.startswith("-")):
            self._check_filled(word, self._flag_as_given)
            self.flag = None
            return [word]
        self._check_value()
        return self._take_flags(word) if word.startswith("-") else self._take_argument(word)

    def finish(self) -> None:
        self._check_value()
        missing = next((argument for argument in self.arguments if argument.default is None), None)
        if missing:
            raise self._wrong(f"{self._name} needs {_shown(missing)}")

    @property
    def _name(self) -> str:
        return str(self.task.name) if self.task else "invoke"

    def _take_flags(self, word: str) -> list[str]:
        name, is_assigned, value = word.partition("=")
        if not name.startswith("--") and len(name) > 2:
            first = self._find(name[:2])
            rest = [name[2:]] if first.takes_value else [f"-{letter}" for letter in name[2:]]
            return [token for part in (name[:2], *rest) for token in self.take(part)]
        flag = self._find(name)
        self.arguments = [argument for argument in self.arguments if argument is not flag or argument.kind is list]
        if is_assigned:
            self._check_filled(value, name)
        elif flag.takes_value and not flag.optional:
            self.flag, self._flag_as_given = flag, name
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
        required = next((argument for argument in self.arguments if argument.default is None), None)
        if required is None and word in self._contexts:
            self.task = self._contexts[word]
            self.arguments = list(self.task.positional_args)
            return [word]
        if not self.arguments:
            meant = did_you_mean(word, self._contexts)
            what = f"{self._name} takes no {word!r}, and no" if self.task and not meant else "no"
            raise self._wrong(f"{what} task is called {word!r}{meant}")
        argument = required or self.arguments[0]
        self._check_filled(word, _shown(argument))
        if argument.kind is not list:
            self.arguments.remove(argument)
        return [word] if required else [f"--{argument.names[0]}", word]

    def _check_value(self) -> None:
        if self.flag:
            raise self._wrong(f"{self._flag_as_given} needs a value")

    def _check_filled(self, value: str, name: str) -> None:
        if not value:
            raise self._wrong(f"{name} is empty: a variable that is not set?")

    def _wrong(self, what: str) -> RequestError:
        return RequestError(what, hint=f"invoke --help {self.task.name}" if self.task else "invoke --list")


def _shown(argument: Argument) -> str:
    return str(argument.names[0]).upper().replace("-", "_")


def _refusal(error: Exception, program: Program) -> Exit:
    if not isinstance(error, RequestError):
        error = RequestError(str(error), hint="invoke --list, invoke --help TASK")
    report.begin(json=not {"--json", "-j"}.isdisjoint(program.argv))
    report.fail(error)
    return Exit(code=error.exit_code)
