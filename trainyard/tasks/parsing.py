"""A flag or task that does not exist exits 2: "the request is wrong".

Invoke exits 1 for it, which here means "the job ran and failed"; a CI system must be able to tell the two apart. Invoke
has no setting for it, and its own `invoke` command cannot be given another Program, so its parsing step is wrapped.
"""

from __future__ import annotations

import sys
from functools import wraps

from invoke.exceptions import Exit, ParseError
from invoke.parser import Parser
from invoke.program import Program

from trainyard.tasks.output import as_typed
from trainyard.tasks.positional import with_flags

WRONG_REQUEST = 2


def refuse_with_exit_2() -> None:
    """Wrap Invoke's parsing of tasks and flags, once."""
    parse, make_parser = Program.parse_tasks, Program._make_parser
    if hasattr(parse, "__wrapped__"):
        return

    @wraps(parse)
    def parse_tasks(program: Program) -> None:
        try:
            _refuse_early_flag(program)
            parse(program)
        except ParseError as error:
            message = f"error: {error}\n  -> invoke --list, invoke --help TASK"
            raise Exit(as_typed(message, program=sys.argv[0]), code=WRONG_REQUEST) from error

    @wraps(make_parser)
    def with_optional_positionals(program: Program) -> Parser:
        parser = make_parser(program)
        program.core.unparsed = with_flags(program.core.unparsed, parser.contexts)
        return parser

    Program.parse_tasks = parse_tasks  # type: ignore[method-assign, assignment]
    Program._make_parser = with_optional_positionals  # type: ignore[method-assign, assignment]


def _refuse_early_flag(program: Program) -> None:
    """Refuse `invoke -f lab cluster.up`: before a task, -f is Invoke's own configuration file."""
    early = program.args.config.value
    if early:
        message = f"error: -f {early} stands before the task\n  -> Put it behind: invoke TASK -f {early}"
        raise Exit(message, code=WRONG_REQUEST)
