"""Check and complete the words of a command line before Invoke parses them.

Invoke has no optional positional arguments: `train.logs RUN` becomes
`train.logs --run RUN`, and each value of a list gets its flag, as in
`cluster.scale gpu=3 cpu=1`. Invoke also accepts a list's flag without a value.
At an unknown word, Invoke prints "No idea what 'x' is!" and exits with 1, which
in Trainyard means "the job ran and failed". No setting changes that, and the
command `invoke` takes no other Program class; therefore `Program.parse_tasks`
is wrapped.
"""

from __future__ import annotations

import difflib
import itertools
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path

from invoke.exceptions import Exit, ParseError
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.program import Program

from trainyard import paths
from trainyard.console import report
from trainyard.errors import RequestError
from trainyard.results import store
from trainyard.tasks import help
from trainyard.wording import did_you_mean

Contexts = Mapping[str, ParserContext]
HELP = ("--help", "-h")


def extend_invoke() -> None:
    """Give Invoke this module's checks, and Trainyard's errors and help."""
    parse = Program.parse_tasks

    @wraps(parse)
    def parse_tasks(program: Program) -> None:
        try:
            _check(program)
            parse(program)
        except (ParseError, RequestError) as error:
            if not isinstance(error, RequestError):
                error = RequestError(str(error), hint="trainyard --list, trainyard --help TASK")
            report.begin(json=not {"--json", "-j"}.isdisjoint(program.argv))
            report.fail(error)
            raise Exit(code=error.exit_code) from error

    Program.parse_tasks = parse_tasks  # type: ignore[assignment]
    Program.print_help = print_help  # type: ignore[assignment]
    Program.print_task_help = print_task_help  # type: ignore[assignment]


def print_help(program: Program) -> None:
    tasks = program.collection
    summaries = {}
    for name in tasks.task_names:
        summaries[name] = (tasks[name].__doc__ or "").partition("\n")[0]
    report.say(help.overview(summaries))


def print_task_help(program: Program, name: str) -> None:
    docstring = program.collection[name].__doc__ or ""
    report.say(help.of_task(name, docstring, program.parser.contexts[name]))


def _check(program: Program) -> None:
    """Translate typed words for Invoke, or print completions for a shell.

    Raises RequestError for wrong words.
    """
    parser = program._make_parser()
    core = program.core
    # Invoke must reuse this parser, because making one consumes the help texts of the tasks.
    program._make_parser = lambda: parser  # type: ignore[method-assign]
    contexts = parser.contexts

    if program.args.complete.value:
        report.say("\n".join(candidates(core.remainder, contexts)))
        raise Exit

    # Before a task, -f is Invoke's own configuration file.
    file = program.args.config.value
    if file:
        raise RequestError(
            f"-f {file} comes before the task", hint=f"Put it after: trainyard TASK -f {file}"
        )

    if core.unparsed[:1] == ["help"]:
        name = ".".join(core.unparsed[1:])
        # Invoke, too, sets True for `--help` without a task.
        program.args.help.set_value(name or True, cast=False)
        core.unparsed = []

    explained = task_to_explain(core.unparsed, contexts)
    if explained:
        program.args.help.value = explained
        core.unparsed = []

    task = program.args.help.value
    if isinstance(task, str) and task not in contexts:
        raise unknown_task(task, contexts, command="--help")

    core.unparsed = checked(core.unparsed, contexts, program.initial_context)
    if core.remainder and help.TAKING_LINES.isdisjoint(core.unparsed):
        raise RequestError(
            f"only {' and '.join(sorted(help.TAKING_LINES))} take words after `--`: {core.remainder}",
            hint="A job's command is in its job.yaml; for one run: --set 'command=[python, train.py]'",
        )


def checked(words: Sequence[str], contexts: Contexts, core: ParserContext) -> list[str]:
    """Return the words for Invoke: optional arguments get flags (`--run RUN`).

    Raises RequestError for the first wrong word.
    """
    line = CommandLine(contexts, core, words)
    tokens: list[str] = []
    for word in words:
        tokens += line.take(word)
    line.finish()
    return tokens


def unknown_task(
    word: str, contexts: Contexts, *, rest: Sequence[str] = (), command: str = ""
) -> RequestError:
    """Return the error for an unknown task; its hint is the likely command.

    A word without a group (`logs`) is compared with tasks of `train`, then
    `cluster`, then others. The hint repeats `rest`, the words after `word`.
    """
    known: dict[str, str] = {}
    for name in sorted(contexts, key=_rank):
        known.setdefault(name.rpartition(".")[2], name)

    members = sorted(name for name in contexts if name.startswith(f"{word}."))
    if members:
        hint = f"trainyard --list {word}"
        return RequestError(f"{word!r} is a group of tasks: {', '.join(members)}", hint=hint)

    close = difflib.get_close_matches(word, known, n=1)
    if "." in word or not close:
        what = f"no task is called {word!r}{did_you_mean(word, contexts)}"
        return RequestError(what, hint="trainyard --list")

    meant = known[close[0]]
    words = filter(None, ("trainyard", command, meant, shlex.join(rest)))
    what = f"no task is called {word!r}; did you mean {meant!r}?"
    return RequestError(what, hint=" ".join(words))


def _rank(task: str) -> int:
    if task.startswith("train."):
        return 0
    if task.startswith("cluster."):
        return 1
    return 2


def task_to_explain(words: Sequence[str], contexts: Contexts) -> str | None:
    """Return the task before `--help`; None without `--help` or a task."""
    position = next((words.index(word) for word in words if word in HELP), 0)
    before = words[:position]
    joined = [f"{group}.{name}" for group, name in itertools.pairwise(before)]
    for word in reversed([*before, *joined]):
        if word in contexts:
            return word
    return None


def candidates(line: str, contexts: Contexts) -> list[str]:
    """Complete the last word; if it is complete, also list possible next ones.

    The completion scripts do not say whether a space follows the last word. The
    shell drops candidates that do not continue the last word.
    """
    try:
        # Bash passes each "=" as a separate word.
        words = [word for word in shlex.split(line)[1:] if word != "="]
    except ValueError:
        return []
    *before, last = words or [""]
    current = _next(before, contexts, is_flag=last.startswith("-"))
    found = [word for word in current if word.startswith(last) and word != last]
    if last in current or last in contexts:
        found += _next(words, contexts, is_flag=False)
    return found


def _next(words: Sequence[str], contexts: Contexts, *, is_flag: bool) -> list[str]:
    typed = CommandLine(contexts, ParserContext(), words)
    with suppress(RequestError):
        for word in words:
            typed.take(word)
    if typed.flag:
        return _values(typed.flag)
    if not typed.task.name:
        return list(contexts)
    if typed.arguments and not is_flag:
        return _values(typed.arguments[0])
    flags = typed.task.flag_names()
    if is_flag:
        return list(flags)
    return [flag for flag in flags if flag.startswith("--")]


def _values(argument: Argument) -> list[str]:
    """List an argument's known values; [] for free text and for paths."""
    here = Path.cwd()
    match argument.names[0]:
        case "file":
            return list(paths.cluster_names(here))
        case "run" | "runs":
            home = paths.results_home(os.environ, directory=here)
            names = sorted(path.parent.name for path in home.glob("*/run.json"))
            jobs = dict.fromkeys(map(store.job_of, names))
            return list(dict.fromkeys([*jobs, *names]))
        case "job-dir" | "job":
            return list(paths.job_names(here))
        case "image":
            return list(paths.image_names(here))

    return []


class CommandLine:
    """The state after the first words of a command line."""

    def __init__(self, contexts: Contexts, core: ParserContext, words: Sequence[str] = ()) -> None:
        self._contexts = contexts
        self._core = core
        # The words that `take` has not yet seen, for hints.
        self._words = list(words)
        # The first word of a task typed as two words: `train dispatch`.
        self._group = ""
        self._flag_as_given = ""
        # The task's context; it has no name until the words name a task.
        self.task = ParserContext()
        self.flag: Argument | None = None
        self.arguments: list[Argument] = []

    def take(self, word: str) -> list[str]:
        """Take the next word; return the words, if any, for Invoke.

        Raises RequestError for a word that cannot be here.
        """
        self._words = self._words[1:]
        if self.flag and (word == "-" or not word.startswith("-")):
            self._check_filled(word, self._flag_as_given)
            self.flag = None
            return [word]
        self._check_value()
        if word.startswith("-"):
            return self._take_flags(word)
        return self._take_argument(word)

    def finish(self) -> None:
        self._check_value()
        if self._group:
            raise unknown_task(self._group, self._contexts)
        missing = self._required
        if missing:
            raise self._wrong(f"{self.task.name} needs {help.placeholder(missing)}")

    @property
    def _required(self) -> Argument | None:
        for argument in self.arguments:
            if argument.default is None:
                return argument
        return None

    def _take_flags(self, word: str) -> list[str]:
        name, is_assigned, value = word.partition("=")
        # Isaac Lab spells flags with underscores: --cfg_class.
        name = name.replace("_", "-")
        word = f"{name}{is_assigned}{value}"

        if not name.startswith("--") and len(name) > 2:
            return self._take_letters(name)

        flag = self._find(name)
        if flag in self.arguments and flag.kind is not list:
            self.arguments.remove(flag)

        if is_assigned:
            self._check_filled(value, name)
        elif flag.takes_value and not flag.optional:
            self.flag = flag
            self._flag_as_given = name
        return [word]

    def _take_letters(self, flags: str) -> list[str]:
        """Take one-letter flags (`-jf`), or one with its value (`-flab`)."""
        if self._find(flags[:2]).takes_value:
            parts = [flags[:2], flags[2:]]
        else:
            parts = [f"-{letter}" for letter in flags[1:]]

        tokens: list[str] = []
        for part in parts:
            tokens += self.take(part)
        return tokens

    def _find(self, name: str) -> Argument:
        for context in (self.task, self._core):
            name = context.inverse_flags.get(name, name)
            # After a task, -f is the cluster file or wrong, but never Invoke's configuration file.
            is_invokes_file = context is self._core and name in ("-f", "--config")
            if name in context.flags and not is_invokes_file:
                # Not .get(), which ignores aliases: short names are aliases.
                return context.flags[name]  # type: ignore[no-any-return]

        if not self.task.name:
            raise RequestError(
                f"{name} comes before the task", hint=f"Put it after: trainyard TASK {name}"
            )

        # Compared without dashes: common dashes would make any two short flags similar.
        known = {flag.lstrip("-"): flag for flag in (*self.task.flags, *self.task.inverse_flags)}
        close = difflib.get_close_matches(name.lstrip("-"), known, n=1)
        what = f"{self.task.name} has no flag {name}"
        if close:
            what += f"; did you mean {known[close[0]]!r}?"
        raise self._wrong(what)

    def _take_argument(self, word: str) -> list[str]:
        required = self._required
        if self._group:
            word = f"{self._group}.{word}"
            self._group = ""
        elif not self.arguments and any(name.startswith(f"{word}.") for name in self._contexts):
            self._group = word
            return []

        if required is None and word in self._contexts:
            self.task = self._contexts[word]
            self.arguments = list(self.task.positional_args)
            return [word]
        if not self.arguments:
            error = unknown_task(word, self._contexts, rest=self._words)
            if self.task.name and "did you mean" not in error.what:
                raise self._wrong(f"{self.task.name} takes no {word!r}, and {error.what}")
            raise error

        argument = required or self.arguments[0]
        self._check_filled(word, help.placeholder(argument))
        if argument.kind is not list:
            self.arguments.remove(argument)

        if required:
            return [word]
        return [f"--{argument.names[0]}", word]

    def _check_value(self) -> None:
        if self.flag:
            raise self._wrong(f"{self._flag_as_given} needs a value")

    def _check_filled(self, value: str, name: str) -> None:
        if not value:
            raise self._wrong(f"{name} is empty: a variable that is not set?")

    def _wrong(self, what: str) -> RequestError:
        hint = "trainyard --list"
        if self.task.name:
            hint = f"trainyard --help {self.task.name}"
        return RequestError(what, hint=hint)
