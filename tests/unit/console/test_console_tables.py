"""Tables, ages and names as kubectl prints and reads them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cotenant.api.ages import age, human_duration
from cotenant_console.api.client import Document, StatusError, error_from
from cotenant_console.tables import Table, table_from

SERVER_TABLE: Document = {
    "kind": "Table",
    "columnDefinitions": [
        {"name": "Name", "priority": 0},
        {"name": "Status", "priority": 0},
        {"name": "IP", "priority": 1},
    ],
    "rows": [
        {"cells": ["a-long-name", "Running", None], "object": {"metadata": {"namespace": "x"}}},
        {"cells": ["b", "", "10.0.0.1"], "object": {"metadata": {"namespace": "default"}}},
    ],
}


def test_columns_are_padded_to_their_widest_cell_and_the_last_one_is_not() -> None:
    assert table_from(SERVER_TABLE, wide=False, with_namespace=False).lines() == [
        "NAME          STATUS",
        "a-long-name   Running",
        "b             <none>",
    ]


def test_the_wide_form_shows_columns_of_lower_priority_and_all_namespaces_come_first() -> None:
    assert table_from(SERVER_TABLE, wide=True, with_namespace=True).lines() == [
        "NAMESPACE   NAME          STATUS    IP",
        "x           a-long-name   Running   <none>",
        "default     b             <none>    10.0.0.1",
    ]


def test_rows_that_come_later_line_up_with_what_was_printed() -> None:
    table = Table(("NAME", "AGE"), [("a-long-name", "1s")])
    table.lines()
    assert table.line(("b", "2s")) == "b             2s"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (11_100, "3h5m"),
        (86_400, "24h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (864_000, "10d"),
        (63_072_000, "2y"),
        (66_000_000, "2y33d"),
    ],
)
def test_durations_are_as_coarse_as_kubectl_shows_them(seconds: int, shown: str) -> None:
    assert human_duration(seconds) == shown


def test_an_age_counts_from_the_timestamp_and_an_unreadable_one_is_unknown() -> None:
    now = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    assert age("2026-01-01T00:00:15Z", now) == "45s"
    assert age("soon", now) == "<unknown>"


def test_a_status_becomes_an_error_with_its_causes() -> None:
    body = (
        b'{"kind":"Status","code":422,"reason":"Invalid","message":"Pod \\"a\\" is invalid",'
        b'"details":{"causes":[{"field":"spec.x","message":"bad","reason":"FieldValueInvalid"}]}}'
    )
    error = error_from(422, body, "Unprocessable Entity")
    assert str(error) == 'Error from server (Invalid): Pod "a" is invalid'
    assert error.causes[0].field_path == "spec.x"


def test_a_body_that_is_no_status_is_quoted() -> None:
    assert error_from(502, b"<html>oops", "Bad Gateway") == StatusError(502, "Bad Gateway", "<html>oops")
