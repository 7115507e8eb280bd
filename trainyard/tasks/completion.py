"""Complete a command line: `invoke --print-completion-script bash` asks for it (zsh and fish too)."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext

from trainyard import paths
from trainyard.errors import RequestError
from trainyard.tasks.grammar import CommandLine, Contexts


def candidates(line: str, contexts: Contexts) -> list[str]:
    """Return what the last word of a command line may become, and what may follow it where it is whole.

    The scripts do not say whether a space follows the last word; the shell leaves out what does not continue it.
    """
    try:
        # Bash makes a word of its own of each "=".
        words = [word for word in shlex.split(line)[1:] if word != "="]
    except ValueError:
        return []
    *before, last = words or [""]
    current = _next(before, contexts, is_flag=last.startswith("-"))
    following = _next(words, contexts, is_flag=False) if last in current or last in contexts else []
    return [word for word in current if word.startswith(last) and word != last] + following


def _next(words: Sequence[str], contexts: Contexts, *, is_flag: bool) -> list[str]:
    typed = CommandLine(contexts, ParserContext())
    with suppress(RequestError):
        for word in words:
            typed.take(word)
    if typed.flag:
        return _values(typed.flag)
    if typed.task is None:
        return list(contexts)
    if typed.arguments and not is_flag:
        return _values(typed.arguments[0])
    return [flag for flag in typed.task.flag_names() if is_flag or flag.startswith("--")]


def _values(argument: Argument) -> list[str]:
    """Return what an argument may be; nothing where it may be any text, or a file, which the shell knows."""
    here = Path.cwd()
    match argument.names[0]:
        case "file":
            return list(paths.cluster_names(here))
        case "run" | "runs":
            home = paths.results_home(os.environ, directory=here)
            return sorted(path.parent.name for path in home.glob("*/run.json"))
        case "job-dir" | "job":
            return list(paths.job_names(here))
        case "image":
            return list(paths.image_names(here))
    return []
