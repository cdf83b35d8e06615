"""The generated reference in docs/ is what the structs say now."""

from __future__ import annotations

import json
from pathlib import Path

from cotenant.log.contract import LOG
from cotenant.reference import CHANNELS, asyncapi, events_page

DOCS = Path(__file__).parents[4] / "docs"


def test_the_page_is_current() -> None:
    assert (DOCS / "events.md").read_text() == events_page(), "run `make docs`"


def test_the_asyncapi_document_is_current() -> None:
    made = json.loads(json.dumps(asyncapi(), default=str))
    assert json.loads((DOCS / "asyncapi.json").read_text()) == made, "run `make docs`"


def test_operations_says_of_every_subject_on_the_log_what_ends_it() -> None:
    section = (DOCS / "operations.md").read_text().partition("## What grows, and what ends it")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    explained = {subject for row in rows for subject in row.split("`")[1::2]}
    assert {subject for stream, subject, _, _ in CHANNELS if stream == LOG} - explained == set()
