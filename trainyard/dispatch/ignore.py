"""Which files of a job directory are left out, and by which ignore file.

The meaning is git's: .gitignore of every directory, deeper ones first, the last matching pattern of
a file wins, `!` brings back, and nothing below an ignored directory can be brought back.
`.rayignore` is read the same way and beats the .gitignore beside it. The .gitignore files above the
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

# Nobody wants these on a cluster; a `!` line in an ignore file brings one back.
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
    """One ignore file: paths are matched relative to the directory it stands in."""

    source: str
    directory: Path
    spec: GitIgnoreSpec

    def verdict(self, path: Path, *, is_directory: bool) -> bool | None:
        """Return whether the last pattern that means this very path leaves it out, or None if none
        does.

        pathspec's own verdict lets patterns that match a parent directory beat later ones for the
        file itself. Git judges the parents first, as our walk does; a pattern that matched a parent
        (pathspec marks its "/" as group ps_d) is therefore none of this path's business.
        """
        name = path.relative_to(self.directory).as_posix() + ("/" if is_directory else "")
        for pattern in reversed(tuple(self.spec.patterns)):
            result = pattern.match_file(name)
            if result is None or pattern.include is None:
                continue
            if result.match.groupdict().get("ps_d") is None or result.match.end("ps_d") == len(
                name
            ):
                return pattern.include
        return None


def source_of(path: Path, rules: Sequence[Rules], *, is_directory: bool) -> str | None:
    """Return the ignore file that leaves the path out, the strongest rules first, or None if it is
    sent.
    """
    verdicts = ((each.source, each.verdict(path, is_directory=is_directory)) for each in rules)
    for source, leaves_out in verdicts:
        if leaves_out is not None:
            return source if leaves_out else None
    return None


def rules_for(root: Path) -> tuple[Rules, ...]:
    """Return the rules that hold at the top of a job directory, the strongest first."""
    # One that ignores the whole job directory does not count: who dispatches it wants it all the
    # same.
    above = []
    for parent in [] if root.is_relative_to(PAYLOAD) else _parents_in_repository(root):
        for rules in rules_of(parent, root=root, names=(".gitignore",)):
            if not rules.spec.match_file(f"{root.relative_to(parent).as_posix()}/"):
                above.append(rules)
    return (*rules_of(root, root=root), *above, Rules("always", root, ALWAYS))


def rules_of(directory: Path, *, root: Path, names: Sequence[str] = IGNORE_FILES) -> list[Rules]:
    """Return the rules of the ignore files of one directory."""
    rules = []
    for file in (directory / name for name in names if (directory / name).is_file()):
        lines = file.read_text(encoding="utf-8-sig", errors="surrogateescape").splitlines()
        if file.is_relative_to(root):
            source = file.relative_to(root).as_posix()
        else:
            source = str(file)
        rules.append(Rules(source, directory, GitIgnoreSpec.from_lines(lines)))
    return rules


def _parents_in_repository(root: Path) -> list[Path]:
    """Return the directories above, nearest first, up to the repository's root; none outside a
    repository.
    """
    parents = [root, *root.parents]
    top = next((number for number, parent in enumerate(parents) if (parent / ".git").exists()), 0)
    return parents[1 : top + 1]
