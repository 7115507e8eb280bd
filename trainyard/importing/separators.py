"""Cut an Isaac Lab command line into jobs at `+` and `*` outside of values.

Isaac Lab joins all words by blanks, and cuts at every sign (wrap_resources.py,
submit_job.py): `lr=1e+5` is two jobs there. Here a sign separates jobs if a
program follows it. Inside a number or brackets, the sign is part of its word.
If neither holds, an error shows both readings.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Literal

from trainyard.errors import Problem, RequestError
from trainyard.importing import shell
from trainyard.importing.shell import VARIABLE

Words = list[str]
# A word as a program gets it, and as it was written, including the blanks before it.
Word = tuple[str, str]
Meaning = Literal["separator", "inside", "both"]
_SCRIPT = re.compile(r"python[0-9.]*|[^\s=+*]+\.(?:py|sh|bash)")
_OPENS = "([{"
_CLOSES = ")]}"


def jobs(words: Sequence[str], sign: str) -> list[Words]:
    """Return the words of each job.

    A job that is a single word was in quotes. It is split as by a shell; with
    shell operators it stays one word. Raises RequestError with both readings of
    an unclear sign.
    """
    found: list[Words] = []
    for job in _cut([(word, f" {word}") for word in words], sign):
        # A single word in quotes may itself contain several jobs.
        if len(job) == 1:
            inner = _cut(_unquoted(job[0][0]), sign)
        else:
            inner = [job]

        for each in inner:
            values = [value for value, _ in each]
            if any(_has_blank(value) and sign in value for value in values):
                raise _ambiguous(len(found) + 1, values, sign)
            text = "".join(raw for _, raw in each).strip(" ")
            has_signs = shell.is_needed(text) or shell.is_needed_for(values)
            found.append([text] if len(job) == 1 and (has_signs or len(values) == 1) else values)

    return found


def _unquoted(text: str) -> list[Word]:
    try:
        return [(shell.value(raw.lstrip()), raw) for raw in shell.raw_words(text)]
    except ValueError as error:
        raise RequestError(f"a job in quotes cannot be read: {error}", where=text) from error


def _cut(words: Sequence[Word], sign: str) -> list[list[Word]]:
    found: list[list[Word]] = [[]]
    # Words that began a job count as programs wherever they appear again.
    programs: set[str] = set()
    for index, (word, raw) in enumerate(words):
        following = None
        if index + 1 < len(words):
            following = words[index + 1][0]

        is_whole = word == sign or _has_blank(word)
        before = [[value for value, _ in job] for job in found]
        if is_whole:
            pieces = [word]
        else:
            pieces = _pieces(word, sign, before, programs, following)

        blanks = raw[: len(raw) - len(raw.lstrip())]
        for piece in pieces:
            if piece == sign:
                found.append([])
                continue
            if piece or pieces == [word]:
                # If the word was quoted, each of its parts needs quotes of its own.
                part = piece if raw.lstrip() == word else shlex.quote(piece)
                found[-1].append((piece, raw if piece == word else blanks + part))
                programs |= {_program([value for value, _ in found[-1]])} - {""}

    return [job for job in found if job]


def _pieces(
    word: str, sign: str, found: Sequence[Words], programs: set[str], following: str | None
) -> Words:
    """Split a word at the signs that separate jobs; these signs stay, as parts.

    `found` has the jobs so far. Raises RequestError for an unclear sign.
    """
    before = found[-1]
    parts = word.split(sign)
    pieces = [parts[0]]

    for index, right in enumerate(parts[1:], 1):
        left = pieces[-1]
        known = programs | {_program([*before, left]) if len(pieces) == 1 else _program([left])}
        is_last = index == len(parts) - 1
        meaning = _meaning(left, right, known - {""}, following if is_last else parts[index + 1])
        if meaning == "separator":
            pieces += [sign, right]
        elif meaning == "inside":
            pieces[-1] = f"{left}{sign}{right}"
        else:
            raise _ambiguous(len(found), [*before, word, *([following] if following else [])], sign)

    return pieces


def _meaning(left: str, right: str, programs: set[str], following: str | None) -> Meaning:
    """Say whether a sign inside a word separates jobs; "both" if it is unclear.

    `left` and `right` are the parts of the word. `following` is the part or
    word after `right`.
    """
    begins = right or following
    if begins is None or _begins(begins, programs, following if right else None):
        return "separator"
    in_brackets = sum(left.count(one) for one in _OPENS) > sum(left.count(one) for one in _CLOSES)
    in_number = re.search(r"\d[eE]?$", left) and re.match(r"[\d.(\[]", right)
    if in_brackets or in_number:
        return "inside"
    return "both"


def _begins(word: str, programs: set[str], following: str | None) -> bool:
    """Say whether a word (a program, or a variable before one) begins a job."""
    if VARIABLE.match(word):
        return following is not None and _begins(following, programs, None)
    return word in programs or _SCRIPT.fullmatch(word) is not None


def _program(job: Words) -> str:
    """Return a job's program, after its variables; "" if there is none yet."""
    for word in job:
        if word and not VARIABLE.match(word):
            return word
    return ""


def _has_blank(word: str) -> bool:
    return re.search(r"\s", word) is not None


def _ambiguous(number: int, words: Words, sign: str) -> RequestError:
    line = " ".join(words)
    apart = [part.strip() for part in line.split(sign) if part.strip()]
    return RequestError(
        f"job {number} can be read in two ways: {line}",
        problems=(
            Problem("one job", shlex.join(words)),
            Problem(
                f"{len(apart)} jobs, as Isaac Lab cuts", "   ".join(f"[{part}]" for part in apart)
            ),
        ),
        hint=f"If `{sign}` separates jobs, let it be a word of its own: JOB {sign} JOB. If it "
        "belongs to a word, as in "
        "Hydra's +key=value, write that task into the job.yaml by hand.",
    )
