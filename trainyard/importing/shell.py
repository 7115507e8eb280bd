"""Split a line as a shell does, and say whether the line needs a shell.

No shell is run, and nothing is expanded.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_QUOTED = r"""\$'(?:[^'\\]|\\.)*'|'[^']*'|"(?:[^"\\]|\\.)*"|\\."""
# Parts of a word that may contain blanks and shell operators: $(...), ${...}, `...`; and (...)
# without a blank.
_INSIDE = r"""\$\((?:[^()]|\([^()]*\))*\)|\$\{[^}]*\}|`[^`]*`|\([^()\s]*\)"""
_QUOTATION = re.compile(_QUOTED, re.DOTALL)
_WORD = re.compile(rf"""(?:{_QUOTED}|[^\s'"\\])+""", re.DOTALL)
_TOKEN = re.compile(
    r"(?P<blank>(?:[^\S\n]|\\\n)+|#[^\n]*)"
    r"|(?P<end>\n|&&|\|[|&]?|;+&?|&(?!>)|[()])"
    r"|(?P<redirection>(?:\d*|&)(?:>>|>&|>\||<<<|<<-?|<&|<>|[<>]))"
    rf"""|(?P<word>(?:{_QUOTED}|{_INSIDE}|[^\s'"\\;&|<>()`])+)""",
    re.DOTALL,
)
# A word with `*` or `?` is a pattern of paths unless it contains one of these characters, as
# Hydra's `key=[1,*]` does.
_PATTERN = r"[^\s=\[\](){}+]"
_SIGN = re.compile(rf"[;&|<>$`\n]|(?:^|\s)(?:#|\(|~(?:/|\s|$)|{_PATTERN}*[*?]{_PATTERN}*(?=\s|$))")
_OF_HOME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=~(?:/[\w./-]*)?$")
_BRACES = re.compile(r"(?<!\$)\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
# Commands that exist only in a shell, and not as programs on PATH.
_BUILTINS = (
    ". : ! { source exec cd pushd popd export declare readonly eval set unset shopt shift read trap "
    "ulimit umask wait alias command builtin type let if for while until case select function time"
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "e": "\x1b", "\\": "\\", "'": "'", '"': '"', "?": "?"}


@dataclass(frozen=True)
class Command:
    """One command of a line: its unquoted words, and the text around it.

    Redirections are part of `after`.
    """

    words: list[str]
    before: str = ""
    after: str = ""

    @property
    def line(self) -> str:
        return " ".join(filter(None, (self.before, *self.words, self.after)))

    @property
    def rest(self) -> list[str]:
        return [text for text in (self.before, self.after) if text]


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int


def commands(script: str) -> list[list[Command]]:
    """Return the commands of each line, without empty lines and comments.

    Raises ValueError for a quotation that does not end.
    """
    lines: list[list[_Token]] = [[]]
    for token in _tokens(script):
        if token.text == "\n":
            lines.append([])
        elif token.kind != "blank":
            lines[-1].append(token)
    return [found for line in lines if (found := list(_commands(script, line)))]


def _tokens(script: str) -> Iterator[_Token]:
    position = 0
    while position < len(script):
        if not (found := _TOKEN.match(script, position)):
            raise ValueError("No closing quotation")
        yield _Token(found.lastgroup or "", found[0], position, found.end())
        position = found.end()


def _commands(script: str, line: Sequence[_Token]) -> Iterator[Command]:
    ends = [-1, *(index for index, token in enumerate(line) if token.kind == "end"), len(line)]
    for first, last in pairwise(ends):
        words = []
        redirections = []
        own = iter(line[first + 1 : last])
        for token in own:
            if token.kind == "redirection":
                redirections.append(script[token.start : next(own, token).end])
            else:
                words.append(value(token.text))

        if words or redirections:
            if first >= 0:
                before = script[line[0].start : line[first].end]
            else:
                before = ""
            if last < len(line):
                after = script[line[last].start : line[-1].end]
            else:
                after = ""
            yield Command(words, before, " ".join(filter(None, (*redirections, after))))


def raw_words(text: str) -> list[str]:
    """Return the words of a text as written, each with the blanks before it.

    A backslash at the end of a line is no word. Raises ValueError for a
    quotation that does not end.
    """
    found = []
    position = 0
    for word in _WORD.finditer(text):
        if text[position : word.start()].strip():
            break
        if word[0] != "\\\n":
            found.append(text[position : word.end()])
        position = word.end()
    if text[position:].strip():
        raise ValueError("No closing quotation")
    return found


def split(text: str) -> list[str]:
    """Return a text's words, unquoted; shell operators are words, too.

    Raises ValueError for a quotation that does not end.
    """
    return [value(raw.lstrip()) for raw in raw_words(text)]


def value(word: str) -> str:
    """Unquote a word. Raises ValueError for an unknown escape in $'...'."""
    return _QUOTATION.sub(lambda found: _unquoted(found[0]), word)


def _unquoted(quotation: str) -> str:
    if quotation.startswith("'"):
        return quotation[1:-1]
    if quotation.startswith('"'):
        return re.sub(r'\\([$`"\\\n])', lambda found: found[1].strip("\n"), quotation[1:-1])
    if quotation.startswith("\\"):
        return quotation[1:].strip("\n")
    return re.sub(r"\\(.)", lambda found: _escaped(found[1]), quotation[2:-1], flags=re.DOTALL)


def _escaped(letter: str) -> str:
    if letter not in _ESCAPES:
        raise ValueError(f"\\{letter} in $'...' is not known here")
    return _ESCAPES[letter]


def command(line: str) -> list[str]:
    """Return the bash command that runs a line.

    Brace expansion ({a,b}) is switched off: Isaac Lab uses /bin/sh, which has
    none.
    """
    return ["bash", *(["+B"] if _BRACES.search(_bare(line)) else []), "-c", line]


def is_needed(text: str) -> bool:
    """Say whether a text needs a shell, not only splitting and unquoting."""
    bare = _bare(text)
    return _SIGN.search(bare) is not None or _begins_in_shell(bare.split())


def _bare(text: str) -> str:
    """Replace quotations by `_`, or by `$` if a shell would expand them."""
    return _QUOTATION.sub(lambda found: _kept(found[0]), text).strip()


def _kept(quotation: str) -> str:
    if quotation == "\\\n":
        return ""
    expands = quotation.startswith('"') and re.search(
        r"[$`]", re.sub(r"\\.", "", quotation, flags=re.DOTALL)
    )
    if expands or quotation.startswith("$"):
        return "$"
    return "_"


def is_needed_for(words: Sequence[str]) -> bool:
    """Say whether words, joined by blanks, need a shell, as `is_needed` does.

    A word with a blank, or one like #colour, was quoted, so it is neither
    pattern nor comment.
    """
    return any(map(_is_sign, words)) or _begins_in_shell(words)


def joined(words: Sequence[str]) -> str:
    """Join words to a shell's line; quote all but operators and patterns."""
    return " ".join(word if _is_sign(word) else _in_quotes(word) for word in words)


def _is_sign(word: str) -> bool:
    if re.search(r"\s", word):
        return re.search(r"[;&|<>$`]", word) is not None
    return _SIGN.search(word) is not None and (word == "#" or not word.startswith("#"))


def _in_quotes(word: str) -> str:
    if _OF_HOME.match(word):
        return word
    name = VARIABLE.match(word)
    # Only the value is quoted, because a shell takes 'NAME=value' in quotes for a program.
    if name:
        return f"{name[0]}{shlex.quote(word[name.end() :])}"
    return shlex.quote(word)


def _begins_in_shell(words: Sequence[str]) -> bool:
    count = variables(words)
    return (
        count == len(words)
        or any(map(_OF_HOME.match, words[:count]))
        or words[count] in _BUILTINS.split()
    )


def variables(words: Sequence[str]) -> int:
    """Count the words at the beginning that set variables (NAME=VALUE)."""
    for number, word in enumerate(words):
        if not VARIABLE.match(word):
            return number
    return len(words)
