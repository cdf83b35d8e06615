"""The generated reference in docs/ is what the structs say now."""

from __future__ import annotations

import json
from pathlib import Path

from cotenant.reference import asyncapi, events_page

DOCS = Path(__file__).parents[4] / "docs"


def test_the_page_is_current() -> None:
    assert (DOCS / "events.md").read_text() == events_page(), "run `make docs`"


def test_the_asyncapi_document_is_current() -> None:
    made = json.loads(json.dumps(asyncapi(), default=str))
    assert json.loads((DOCS / "asyncapi.json").read_text()) == made, "run `make docs`"
