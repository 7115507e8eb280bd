"""Which files of a job directory are left out, and by which ignore file.

The meaning is git's: .gitignore of every directory, deeper ones first, the last matching pattern of
a file wins, `!` brings back, and nothing below an ignored directory can be brought back.
`.rayignore` is read the same way and beats the .gitignore next to it. The .gitignore files above the
job, up to the root of the repository, count too, but not for the jobs that Trainyard brings: they
may be installed below a repository that means others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from trainyard.paths import PAYLOAD

IGNORE_FILES = (".rayignore", ".gitignore")

# They are useless on a cluster; a `!` line in an ignore file brings one back.
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
    """One ignore file: paths are matched relative to its directory."""

    source: str
    directory: Path
    spec: GitIgnoreSpec

    def verdict(self, path: Path, *, is_directory: bool) -> bool | None:
        """Return whether the last pattern for this very path leaves it out; None if none matches.

        pathspec's own verdict lets patterns that match a parent directory beat later ones for the
        file itself. Git judges the parents first, as `package` does; a pattern that matched a
        parent (pathspec marks its "/" as group ps_d) is therefore not for this path.
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
    """Return the ignore file that leaves the path out (strongest rules first), None if sent."""
    for file in rules:
        leaves_out = file.verdict(path, is_directory=is_directory)
        if leaves_out:
            return file.source
        if leaves_out is not None:
            return None
    return None


def rules_for(root: Path) -> tuple[Rules, ...]:
    """Return the rules that hold at the top of a job directory, the strongest first."""
    above: list[Rules] = []
    parents = [] if root.is_relative_to(PAYLOAD) else _parents_in_repository(root)
    for parent in parents:
        for rules in rules_of(parent, root=root, names=(".gitignore",)):
            # Rules that ignore the whole job directory do not count: it is dispatched all the same.
            if not rules.spec.match_file(f"{root.relative_to(parent).as_posix()}/"):
                above.append(rules)
    return (*rules_of(root, root=root), *above, Rules("always", root, ALWAYS))


def rules_of(directory: Path, *, root: Path, names: Sequence[str] = IGNORE_FILES) -> list[Rules]:
    """Return the rules of the ignore files of one directory."""
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
        rules.append(Rules(source, directory, GitIgnoreSpec.from_lines(lines)))
    return rules


def _parents_in_repository(root: Path) -> list[Path]:
    """Return the directories above, nearest first, up to the root of the repository, if any."""
    parents = [root, *root.parents]
    for index, parent in enumerate(parents):
        if (parent / ".git").exists():
            return parents[1 : index + 1]
    return []
