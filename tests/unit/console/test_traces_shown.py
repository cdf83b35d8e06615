"""From a decision to its trace: `events` and `explain` show the trace id of what they tell."""

from __future__ import annotations

import msgspec

from cotenant.events import Event
from cotenant.explain.causes import CauseWalk, event_line, explain_pod
from cotenant.model.subjects import pod_subject
from cotenant_console.api.client import Document
from cotenant_console.commands.events import event_line as shown_event
from cotenant_console.commands.explain import explanation_lines
from tests.builders import pod_document, stored
from tests.causes import lookup_all

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def stored_pod(traceparent: str = f"00-{TRACE}-00f067aa0ba902b7-01") -> Event:
    subject = pod_subject("default", "p")
    return Event(subject=subject, data=stored(pod_document()), sequence=7, id="e", causes=("LOG:3",), traceparent=traceparent)


def plain(value: object) -> Document:
    document: Document = msgspec.json.decode(msgspec.json.encode(value))
    return document


def test_an_event_is_shown_with_its_trace_in_the_wide_form_and_as_json() -> None:
    line = plain(event_line(stored_pod()))
    assert line["traceId"] == TRACE
    assert shown_event(line, wide=True).endswith(f"<- LOG:3  trace={TRACE}")
    assert TRACE not in shown_event(line, wide=False)
    untold = plain(event_line(stored_pod("")))
    assert "traceId" not in untold
    assert "trace=" not in shown_event(untold, wide=True)


def test_an_explanation_names_the_trace_of_what_it_rests_on() -> None:
    pod = stored_pod()
    walk = lookup_all(CauseWalk([pod]), {})
    explanation = plain(explain_pod("default", "p", [pod], walk))
    lines = list(explanation_lines(explanation, 12))
    assert lines[0].startswith("pod default/p: ")
    assert lines[1] == f"trace {TRACE}"
    untold = stored_pod("")
    bare = plain(explain_pod("default", "p", [untold], lookup_all(CauseWalk([untold]), {})))
    assert not any(line.startswith("trace ") for line in explanation_lines(bare, 12))
