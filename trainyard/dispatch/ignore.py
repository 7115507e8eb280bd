"""Which files of a job directory are left out, and by which ignore file.

The meaning is git's: .gitignore of every directory, deeper ones first, the last matching pattern of a file wins, `!`
brings back, and nothing below an ignored directory can be brought back. `.rayignore` is read the same way and beats
the .gitignore beside it. The .gitignore files above the job, up to the root of the repository, count too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

IGNORE_FILES = (".rayignore", ".gitignore")

# Nobody wants these on a cluster; a `!` line in an ignore file brings one back.
ALWAYS = GitIgnoreSpec.from_lines(
    [".git", ".hg/", ".svn/", ".venv/", "__pycache__/", "*.pyc", ".mypy_cache/", ".ruff_cache/", ".pytest_cache/"]
)


@dataclass(frozen=True)
class Rules:
    """One ignore file: paths are matched relative to the directory it stands in."""

    source: str
    directory: Path
    spec: GitIgnoreSpec


@dataclass(frozen=True)
class Ignores:
    """Every rule that holds in one directory, the strongest first."""

    rules: tuple[Rules, ...]

    def source_of(self, path: Path, *, is_directory: bool) -> str | None:
        """Return the ignore file that leaves the path out, or None if it is sent."""
        for rules in self.rules:
            name = path.relative_to(rules.directory).as_posix()
            verdict = rules.spec.check_file(name + "/" if is_directory else name).include
            if verdict is not None:
                return rules.source if verdict else None
        return None

    def inside(self, directory: Path, *, root: Path) -> Ignores:
        """Return the rules that hold in a directory below: its own ignore files are stronger."""
        return Ignores((*_rules_of(directory, root=root), *self.rules))


def ignores_for(root: Path) -> Ignores:
    rules = [*_rules_of(root, root=root)]
    for parent in _parents_in_repository(root):
        rules += [above for above in _rules_of(parent, root=root, names=(".gitignore",)) if not _hides(above, root)]
    return Ignores((*rules, Rules("Trainyard itself", root, ALWAYS)))


def _rules_of(directory: Path, *, root: Path, names: tuple[str, ...] = IGNORE_FILES) -> Iterator[Rules]:
    for name in names:
        file = directory / name
        if file.is_file():
            lines = file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
            name = file.relative_to(root).as_posix() if file.is_relative_to(root) else str(file)
            yield Rules(name, directory, GitIgnoreSpec.from_lines(lines))


def _hides(rules: Rules, root: Path) -> bool:
    """Say whether the rules ignore the whole job directory: who dispatches it wants it all the same."""
    return rules.spec.match_file(root.relative_to(rules.directory).as_posix() + "/")


def _parents_in_repository(root: Path) -> tuple[Path, ...]:
    """Return the directories above, nearest first, up to the repository's root; none outside a repository."""
    if (root / ".git").exists():
        return ()
    above: list[Path] = []
    for parent in root.parents:
        above.append(parent)
        if (parent / ".git").exists():
            return tuple(above)
    return ()
