"""Folders and files keep their sizes: at most 18 files a folder, 300 lines a file; a longer one says why, none exceeds 350.

The documentation names files that exist.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[4]
SOURCES = sorted(
    path
    for base in (ROOT / "shared", *ROOT.glob("services/*"))
    for path in base.glob("cotenant*/**/*.py")
    if path.name != "__init__.py"
)


def length(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_there_is_something_to_check() -> None:
    assert len(SOURCES) > 500


def test_a_folder_has_at_most_18_files() -> None:
    counts = Counter(path.parent for path in SOURCES)
    assert {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > 18} == {}


def test_a_file_of_more_than_300_lines_says_why() -> None:
    longer = (path for path in SOURCES if length(path) > 300)
    silent = [path for path in longer if "Over 300 lines: " not in (ast.get_docstring(ast.parse(path.read_text())) or "")]
    assert [str(path.relative_to(ROOT)) for path in silent] == []


def test_no_file_exceeds_350_lines() -> None:
    assert [str(path.relative_to(ROOT)) for path in SOURCES if length(path) > 350] == []


def test_pages_name_files_that_exist() -> None:
    present = {str(path.relative_to(ROOT)) for base in ("shared", "services", "tests") for path in (ROOT / base).rglob("*.py")}
    known = {"/".join(parts[start:]) for parts in (name.split("/") for name in present) for start in range(len(parts))}
    named = {
        (page.name, name)
        for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"))
        for name in re.findall(r"`([\w/-]+\.py)`", page.read_text())
    }
    assert len(named) > 20
    assert {(page, name) for page, name in named if name not in known} == set()
