"""What of a command line goes wrong before a task begins: exit code 2, "the request is wrong", and what was meant.

Invoke exits 1 for it, which here means "the job ran and failed"; a CI system must be able to tell the two apart. Invoke
has no setting for it, and its own `invoke` command cannot be given another Program, so its parsing steps are wrapped.
"""

from __future__ import annotations

from functools import wraps

from invoke.exceptions import Exit, ParseError
from invoke.parser import Parser
from invoke.program import Program

from trainyard.errors import RequestError
from trainyard.suggest import did_you_mean
from trainyard.tasks import grammar
from trainyard.tasks.command_hints import complete

WRONG_REQUEST = 2


def extend_invoke() -> None:
    """Wrap Invoke's parsing of tasks and flags, once."""
    parse, make_parser, clean_up = Program.parse_tasks, Program._make_parser, Program.parse_cleanup
    if hasattr(parse, "__wrapped__"):
        return

    @wraps(parse)
    def parse_tasks(program: Program) -> None:
        try:
            _refuse_early(program)
            parse(program)
        except (ParseError, RequestError) as error:
            raise _refusal(error) from error

    @wraps(make_parser)
    def checked_parser(program: Program) -> Parser:
        parser = make_parser(program)
        explained = grammar.task_to_explain(program.core.unparsed, parser.contexts)
        if explained:
            program.core[0].args["help"].value, program.core.unparsed = explained, []
        program.core.unparsed = grammar.checked(program.core.unparsed, parser.contexts, program.initial_context)
        return parser

    @wraps(clean_up)
    def parse_cleanup(program: Program) -> None:
        asked = program.args.help.value
        if isinstance(asked, str) and asked not in program.parser.contexts:
            meant = did_you_mean(asked, program.parser.contexts)
            raise _refusal(RequestError(f"no task is called {asked!r}{meant}", hint="invoke --list"))
        if program.args.complete.value:
            from trainyard.tasks import completion

            print("\n".join(completion.candidates(program.core.remainder, program.parser.contexts)))
            raise Exit
        clean_up(program)

    Program.parse_tasks = parse_tasks  # type: ignore[method-assign, assignment]
    Program._make_parser = checked_parser  # type: ignore[method-assign, assignment]
    Program.parse_cleanup = parse_cleanup  # type: ignore[method-assign, assignment]


def _refuse_early(program: Program) -> None:
    """Refuse `invoke -f lab cluster.up`: before a task, -f is Invoke's own configuration file."""
    early = program.args.config.value
    if early:
        raise RequestError(f"-f {early} stands before the task", hint=f"Put it behind: invoke TASK -f {early}")
    if program.core.remainder and not program.args.complete.value:
        raise RequestError(f"nothing may stand behind --: {program.core.remainder}", hint="invoke --list")


def _refusal(error: Exception) -> Exit:
    hint = "" if isinstance(error, RequestError) else "\n  -> invoke --list, invoke --help TASK"
    return Exit(complete(f"error: {error}{hint}"), code=WRONG_REQUEST)
