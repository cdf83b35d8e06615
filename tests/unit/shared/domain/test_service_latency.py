"""The annotations and the answer by which a service says its own latency."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.domain.service_latency import (
    ANNOTATION_ENDPOINT,
    ANNOTATION_GOAL,
    LatencyEndpoint,
    LatencyFigures,
    latency_annotation_errors,
    parse_latency_endpoint,
    parse_latency_figures,
    parse_latency_goal,
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("http://127.0.0.1:8080/latency?x=1", LatencyEndpoint(host="127.0.0.1", port=8080, path="/latency?x=1")),
        ("http://localhost:80", LatencyEndpoint(host="127.0.0.1", port=80, path="/")),
        ("http://[::1]:65535/", LatencyEndpoint(host="::1", port=65535, path="/")),
        ("http://unix:/run/web.sock:/latency", LatencyEndpoint(socket="/run/web.sock", path="/latency")),
        ("http://unix:/run/web.sock", LatencyEndpoint(socket="/run/web.sock", path="/")),
    ],
)
def test_an_endpoint_is_on_loopback_or_a_unix_socket(text: str, wanted: LatencyEndpoint) -> None:
    assert parse_latency_endpoint(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "http://10.0.0.1:80/", "http://example.com:80/", "https://127.0.0.1:80/", "http://127.0.0.1/", "http://127.0.0.1:0/",
        "http://127.0.0.1:65536/", "http://127.0.0.256:80/", "http://127.0.0.1:80/a\r\nHost: x", "http://127.0.0.1:80/ä",
        "http://127.0.0.1:80/a b", "http://unix:run/x", "http://unix:/run/../etc/x", f"http://unix:/{'a' * 80}",
        "http://unix:/a b:/", "http://127.0.0.1:٨٠/",
        f"http://127.0.0.1:80/{'a' * 256}", "http://127.0.0.1@evil:80/", "http://unix:/run/x\0:/",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|characters|must"):
        parse_latency_endpoint(text)


@given(st.text())
def test_any_text_is_an_endpoint_or_a_clear_error(text: str) -> None:
    try:
        found = parse_latency_endpoint(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017
    else:
        assert found.path.isascii()
        assert found.path.isprintable()


def test_a_goal_is_a_duration_from_a_tenth_of_a_millisecond_to_an_hour() -> None:
    assert parse_latency_goal("20ms") == 20.0
    assert parse_latency_goal("1.5s") == 1500.0
    for text in ("", "20", "0", "-1ms", "1us", "2h", "1e18s", "NaN"):
        with pytest.raises(ValueError, match="duration"):
            parse_latency_goal(text)


def test_figures_are_milliseconds_within_reason() -> None:
    assert parse_latency_figures(b'{"p99Ms": 3, "x": {}}') == LatencyFigures(3.0, None)
    assert parse_latency_figures(b'{"p99Ms": null, "oldestRequestMs": 0}') == LatencyFigures(None, 0.0)
    for body in (b"", b"null", b"{}", b'{"p99Ms": "3"}', b'{"p99Ms": 1e300}', b'{"oldestRequestMs": -0.1}', b"\xff"):
        with pytest.raises(ValueError, match="answer"):
            parse_latency_figures(body)


def test_errors_name_the_annotation_and_an_endpoint_needs_a_goal() -> None:
    assert latency_annotation_errors({ANNOTATION_GOAL: "1ms"}) == []
    assert latency_annotation_errors({ANNOTATION_GOAL: "1ms", ANNOTATION_ENDPOINT: "http://127.0.0.1:1/"}) == []
    ((name, value, why),) = latency_annotation_errors({ANNOTATION_ENDPOINT: "http://127.0.0.1:1/"})
    assert (name, value) == (ANNOTATION_ENDPOINT, "http://127.0.0.1:1/")
    assert ANNOTATION_GOAL in why
