"""The pages that users read: their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DECISIONS = ROOT / "docs" / "decisions"
README_LINES = 150

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?) *$", re.MULTILINE)
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
NOT_IN_ANCHORS = re.compile(r"[^\w\- ]")

PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("images/*/*.md"))
    if path.name != "CHANGELOG.md"
)
BY_PATH = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def text_of(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return FENCED.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = HEADING.findall(text_of(page))
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {NOT_IN_ANCHORS.sub("", heading).replace(" ", "-") for heading in plain}


@BY_PATH
def test_every_link_of_a_page_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    broken = []
    for link in LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert broken == []


def test_every_page_of_docs_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {link.partition("#")[0] for link in LINK.findall(index.read_text())}

    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}

    assert pages - linked == set()


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


BANNED = re.compile(
    r"\b(anew|goes on|go on|going on|went on|of ours|our "
    r"own|beside|stands|stood|absent|nobody|whoever|for ever"
    r"|(?:it|they) (?:has|have) left)\b",
    re.IGNORECASE,
)
CODE = re.compile(r"`[^`]*`|<!--.*?-->|\]\([^)]*\)", re.DOTALL)
FOR_USERS = [page for page in PAGES if page.name != "CONTRIBUTING.md" and page.parent != DECISIONS]


@pytest.mark.parametrize("page", FOR_USERS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_in_plain_words(page: Path) -> None:
    prose = CODE.sub("", text_of(page))

    assert [found.group() for found in BANNED.finditer(prose)] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_no_page_has_the_marks_of_a_merge_conflict(page: Path) -> None:
    marks = ("<<<<<<< ", "=======\n", ">>>>>>> ")
    lines = page.read_text().splitlines(keepends=True)
    assert [line for line in lines if line.startswith(marks)] == []
