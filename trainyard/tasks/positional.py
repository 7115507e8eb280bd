"""`invoke train.logs RUN`, where RUN may be left out: Invoke knows only positional arguments that must be given.

A task lists such an argument as positional and gives it a default; here its value gets its flag put in front. One that
is a list takes every value: `cluster.scale gpu=3 cpu=1`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext


def with_flags(tokens: Sequence[str], contexts: Mapping[str, ParserContext]) -> list[str]:
    """Return the words of a command line with `--run` before a RUN that has none."""
    return list(_flagged(tokens, contexts))


def _flagged(tokens: Sequence[str], contexts: Mapping[str, ParserContext]) -> Iterator[str]:
    context: ParserContext | None = None
    required: list[Argument] = []
    optional: list[Argument] = []
    is_value = False
    for token in tokens:
        if is_value:
            is_value = False
        elif token.startswith("-"):
            # Not .get(): it does not know the short names, which are aliases.
            flag = context.flags[token] if context and token in context.flags else None
            is_value = bool(flag and flag.takes_value)
            optional = [one for one in optional if one is not flag or _is_list(one)]
        elif required:
            required.pop()
        elif token in contexts:
            context = contexts[token]
            required = [one for one in context.positional_args if one.default is None]
            optional = [one for one in context.positional_args if one.default is not None]
        elif optional:
            yield f"--{optional[0].names[0]}"
            optional = optional if _is_list(optional[0]) else optional[1:]
        yield token


def _is_list(argument: Argument) -> bool:
    return bool(argument.kind is list)
