"""Say which files of a job are left out, and which ignore file decides.

The rules are git's. The .gitignore of a deeper directory comes first. Within
one file, the last matching pattern wins, and `!` includes a path again, but
nothing below an ignored directory. `.rayignore` has the same syntax and beats
the .gitignore next to it. The .gitignore files above the job's directory, up to
the root of the repository, count too. For jobs that Trainyard ships, they do
not, because such a job may be installed inside an unrelated repository.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from trainyard.paths import PAYLOAD

IGNORE_FILES = (".rayignore", ".gitignore")

# Useless on a cluster. A `!` line in an ignore file can undo this.
ALWAYS = GitIgnoreSpec.from_lines(
    [
        ".git",
        ".hg/",
        ".svn/",
        ".venv/",
        "__pycache__/",
        "*.pyc",
        ".mypy_cache/",
        ".ruff_cache/",
        ".pytest_cache/",
    ]
)


@dataclass(frozen=True)
class Rules:
    """The patterns of one ignore file, relative to `directory`.

    Users see the file as `source`.
    """

    source: str
    directory: Path
    spec: GitIgnoreSpec

    def verdict(self, path: Path, *, is_directory: bool) -> bool | None:
        """Say whether the last matching pattern, if any, ignores a path.

        Patterns that match only a parent directory do not count: the caller,
        like git, has checked the parents before. pathspec's own verdict would
        let them beat later patterns that match the file itself. In pathspec's
        match, the group ps_d is the "/" after a matched directory.
        """
        name = path.relative_to(self.directory).as_posix() + ("/" if is_directory else "")
        for pattern in reversed(tuple(self.spec.patterns)):
            result = pattern.match_file(name)
            if result is None or pattern.include is None:
                continue
            is_of_parent = result.match.groupdict().get("ps_d") is not None
            if not is_of_parent or result.match.end("ps_d") == len(name):
                return pattern.include
        return None


def source_of(path: Path, rules: Sequence[Rules], *, is_directory: bool) -> str | None:
    """Name the ignore file that leaves out the path; None if the path is sent.

    `rules` has the strongest first. The caller must have checked the parent
    directories.
    """
    for file in rules:
        leaves_out = file.verdict(path, is_directory=is_directory)
        if leaves_out:
            return file.source
        if leaves_out is not None:
            return None
    return None


def rules_for(root: Path) -> tuple[Rules, ...]:
    """Return the rules for the top of a job directory, the strongest first."""
    above: list[Rules] = []
    parents = [] if root.is_relative_to(PAYLOAD) else _parents_in_repository(root)
    for parent in parents:
        for rules in rules_of(parent, root=root, names=(".gitignore",)):
            # Rules that ignore the whole job directory do not count: the user dispatches it.
            if not rules.spec.match_file(f"{root.relative_to(parent).as_posix()}/"):
                above.append(rules)
    return (*rules_of(root, root=root), *above, Rules("always", root, ALWAYS))


def rules_of(directory: Path, *, root: Path, names: Sequence[str] = IGNORE_FILES) -> list[Rules]:
    """Return the rules of one directory's ignore files, the strongest first."""
    rules = []
    for name in names:
        file = directory / name
        if not file.is_file():
            continue
        lines = file.read_text(encoding="utf-8-sig", errors="surrogateescape").splitlines()
        if file.is_relative_to(root):
            source = file.relative_to(root).as_posix()
        else:
            source = str(file)
        valid = [line for line in lines if _is_valid(line)]
        rules.append(Rules(source, directory, GitIgnoreSpec.from_lines(valid)))
    return rules


def _is_valid(line: str) -> bool:
    """Return whether pathspec takes a line; git ignores lines like `[z-a]`."""
    try:
        GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error):
        return False
    return True


def _parents_in_repository(root: Path) -> list[Path]:
    """Return the directories above `root` in its repository, nearest first."""
    parents = [root, *root.parents]
    for index, parent in enumerate(parents):
        if (parent / ".git").exists():
            return parents[1 : index + 1]
    return []
