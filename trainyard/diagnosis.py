"""Find the cause of a failure, and a hint, in what an outside system printed.

Each module that reads such texts has its own table of rules:

    RULES = (Rule(r'secret "(?P<name>[^"]+)" not found', "no Secret {name}",
    hint="Make it."), ...) found = explain(text, RULES)

The first rule that matches wins, so particular rules come before general ones.
A last rule with the pattern "" matches every other text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from trainyard.errors import OutsideError, TrainyardError
from trainyard.wording import named

_NAME = re.compile(r"\{(\w+)\}")
_SHOWN_LENGTH = 600


@dataclass(frozen=True)
class Rule:
    """One kind of failure: how to recognize it, its message and its hint.

    `pattern` is searched for in the outside system's text. `reasons` are the
    system's short codes (ImagePullBackOff, an HTTP status); if a rule has any,
    one of them must match as well. In `message` and `hint`, {name} is a named
    group of the pattern or an argument of `explain`. `key` names the kind of
    cause. For `tolerates` seconds, the failure may still resolve itself.
    """

    pattern: str
    message: str
    hint: str | None = None
    key: str = ""
    error: type[TrainyardError] = OutsideError
    reasons: tuple[str, ...] = ()
    tolerates: float = 0.0


@dataclass(frozen=True)
class Diagnosis:
    """The cause of a failure, found by a rule or by other code.

    `raw` is the outside system's text, shortened, on one line. `summary` is a
    few words for a table. If several `nodes` fail alike, message and summary
    hold for each of them; `hosts` are their machines. For `tolerates` seconds,
    the failure may still resolve itself. `log_tail` asks the outside system for
    the last lines of a log.
    """

    message: str
    hint: str | None = None
    summary: str = ""
    key: str = ""
    error: type[TrainyardError] = OutsideError
    raw: str = ""
    tolerates: float = 0.0
    nodes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    log_tail: Callable[[], str] | None = None

    def sentence(self) -> str:
        if self.nodes:
            return f"{named(self.nodes)} {self.message}"
        return self.message

    def to_error(self, where: str | None = None) -> TrainyardError:
        """Turn this cause into an error; `where` defaults to `raw`.

        Calls `log_tail`, which may send a request.
        """
        tail = self.log_tail() if self.log_tail else ""
        return self.error(
            "\n".join(filter(None, (self.sentence(), tail))),
            where=where or self.raw or None,
            hint=self.hint,
        )


def explain(
    text: str, rules: Iterable[Rule], *, reason: str = "", **words: str
) -> Diagnosis | None:
    """Return the diagnosis of the first rule that matches.

    `reason` is the system's short code for the failure; `words` fill the
    {name}s of the rule.
    """
    for rule in rules:
        match = re.search(rule.pattern, text)
        if match and (not rule.reasons or reason in rule.reasons):
            known = {**words, **match.groupdict(default="")}
            message = _filled(rule.message, known)
            hint = _filled(rule.hint or "", known)
            return Diagnosis(
                message,
                hint or None,
                message,
                rule.key,
                rule.error,
                shortened(text),
                rule.tolerates,
            )

    return None


def merged(causes: Iterable[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Merge causes that have the same message and error class."""
    found: dict[tuple[str, str], Diagnosis] = {}
    for cause in causes:
        key = cause.message, cause.error.__name__
        first = found.setdefault(key, cause)
        if first is not cause:
            hosts = tuple(dict.fromkeys((*first.hosts, *cause.hosts)))
            found[key] = replace(first, nodes=(*first.nodes, *cause.nodes), hosts=hosts)
    return tuple(found.values())


def _filled(template: str, words: Mapping[str, str]) -> str:
    return _NAME.sub(lambda found: words.get(found[1], found[0]), template)


def shortened(raw: str) -> str:
    line = " ".join(raw.split())
    if len(line) <= _SHOWN_LENGTH:
        return line
    return f"{line[:_SHOWN_LENGTH]}..."
