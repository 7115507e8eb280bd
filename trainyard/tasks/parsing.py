"""A flag or task that does not exist exits 2: "the request is wrong".

Invoke exits 1 for it, which here means "the job ran and failed"; a CI system must be able to tell the two apart. Invoke
has no setting for it, and its own `invoke` command cannot be given another Program, so its parsing step is wrapped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import wraps

from invoke.exceptions import Exit, ParseError
from invoke.parser.context import ParserContext
from invoke.program import Program

from trainyard.tasks.output import as_typed
from trainyard.tasks.positional import with_flags

WRONG_REQUEST = 2


def refuse_with_exit_2() -> None:
    """Wrap Invoke's parsing of tasks and flags, once."""
    parse = Program.parse_tasks
    if hasattr(parse, "__wrapped__"):
        return

    @wraps(parse)
    def parse_tasks(program: Program) -> None:
        try:
            contexts = _by_name(program.collection.to_contexts())
            program.core.unparsed = with_flags(program.core.unparsed, contexts)
            parse(program)
        except ParseError as error:
            message = f"error: {error}\n  -> invoke --list, invoke --help TASK"
            raise Exit(as_typed(message, program=sys.argv[0]), code=WRONG_REQUEST) from error

    Program.parse_tasks = parse_tasks  # type: ignore[method-assign, assignment]


def _by_name(contexts: Iterable[ParserContext]) -> dict[str, ParserContext]:
    return {name: context for context in contexts for name in (str(context.name), *context.aliases)}
