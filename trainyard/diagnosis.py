"""The engine that finds causes and hints in texts of outside systems; rules are with their readers.

    RULES = (Rule(r'secret "(?P<name>[^"]+)" not found', "there is no Secret {name}", hint="Make it."), ...)
    found = explain(text, RULES)

The first rule that fits counts: the particular comes before the general, and one with the pattern
"" is for the rest.
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
    """One way to fail, and what a person reads about it.

    `pattern` is searched for in what the system said; `reasons` are its short words for it
    (ImagePullBackOff, an HTTP status), one of which must fit as well. In `message` and `hint`,
    {name} is a named group of the pattern or an argument of `explain`. `key` names the kind of
    cause. `tolerates`: it may mend itself within so many seconds.
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
    """A cause, as a rule or other code found it.

    `raw` is the outside system's text, word by word; `summary` a few words for a table. With
    several `nodes` that fail alike, message and summary are about each of them; `hosts` are the
    machines they are on. `tolerates`: it may mend itself within so many seconds. `log_tail` asks
    for the last lines of a log.
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
        """Return the cause with the nodes that it is about."""
        if self.nodes:
            return f"{named(self.nodes)} {self.message}"
        return self.message

    def to_error(self, where: str | None = None) -> TrainyardError:
        """Return the error; without `where` it shows what the system said."""
        tail = self.log_tail() if self.log_tail else ""
        return self.error(
            "\n".join(filter(None, (self.sentence(), tail))),
            where=where or self.raw or None,
            hint=self.hint,
        )


def explain(
    text: str, rules: Iterable[Rule], *, reason: str = "", **words: str
) -> Diagnosis | None:
    """Return the diagnosis of the first rule that fits, None if none does: no cause is invented."""
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
    """Return the causes, each once: with all nodes that have it."""
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
