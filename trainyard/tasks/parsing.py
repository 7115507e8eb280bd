"""A flag or task that does not exist exits 2: "the request is wrong".

Invoke exits 1 for it, which here means "the job ran and failed"; a CI system must be able to tell the two apart. Invoke
has no setting for it, and its own `invoke` command cannot be given another Program, so its parsing step is wrapped.
"""

from __future__ import annotations

from functools import wraps

from invoke.exceptions import Exit, ParseError
from invoke.program import Program

WRONG_REQUEST = 2


def refuse_with_exit_2() -> None:
    """Wrap Invoke's parsing of tasks and flags, once."""
    parse = Program.parse_tasks
    if hasattr(parse, "__wrapped__"):
        return

    @wraps(parse)
    def parse_tasks(program: Program) -> None:
        try:
            parse(program)
        except ParseError as error:
            raise Exit(f"error: {error}\n  -> invoke --list, invoke --help TASK", code=WRONG_REQUEST) from error

    Program.parse_tasks = parse_tasks  # type: ignore[method-assign, assignment]
