"""Traces: an event continues that of its first cause, deterministically; `replay --verify` notices another one; lines of the
log carry them; nothing of it is unbounded."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import msgspec
import pytest

from cotenant.engine.commit import CommitPlace, Decision, Identity, commit_batch
from cotenant.engine.replay import compare
from cotenant.events import Event
from cotenant.events.commits import Commit
from cotenant.log.traces import Traces, about
from cotenant.model.trace_context import CURRENT, continued, found_in, parsed, span_id, trace_of, traceparent_of
from cotenant.runtime.telemetry import JsonFormatter, TextFormatter
from tests.builders import pod_document, stored
from tests.unit.scheduler.builders_scheduler import NOW

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{SPAN}-01"
TOY = Identity(service="toy")


def event(sequence: int = 7, *, traceparent: str = GIVEN, causes: tuple[str, ...] = (), subject: str = "objects.x") -> Event:
    data = stored(pod_document())
    return Event(subject=subject, data=data, causes=causes, sequence=sequence, id="e", traceparent=traceparent)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-zz",
        "\udcff" * 55,
        "00-" + "é" * 32 + f"-{SPAN}-01",
    ],
)
def test_what_is_no_traceparent_is_not_continued(text: str) -> None:
    assert parsed(text) == ""
    assert continued(text, "id") == ""


def test_a_traceparent_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert parsed(f"cc-{TRACE}-{SPAN}-03-what-comes") == GIVEN
    assert parsed(f"00-{TRACE}-{SPAN}-02") == f"00-{TRACE}-{SPAN}-00"


def test_an_event_has_the_trace_and_the_flag_of_its_first_cause_and_a_span_of_its_own() -> None:
    for flag in ("00", "01"):
        made = continued(f"00-{TRACE}-{SPAN}-{flag}", "cell/toy/0/12/1")
        assert made == f"00-{TRACE}-{span_id('cell/toy/0/12/1')}-{flag}"


def test_traces_are_found_by_the_name_of_a_cause() -> None:
    traces = Traces(("objects.", "usage."))
    usage = msgspec.structs.replace(event(3, subject="usage.n"), stream="USAGE")
    traces.note([event(), usage, event(8, subject="metrics.n"), event(9, traceparent="no traceparent")])
    assert traces.of(("LOG:7", "LOG:8")) == GIVEN
    assert traces.of(("USAGE:3",)) == GIVEN
    unknown = ("USAGE:7", "LOG:3", "LOG:8", "LOG:9", "LOG:-1", "LOG:x", "LOG:", "", "LOG:²")
    assert [traces.of((ref,)) for ref in unknown] == [""] * len(unknown)
    assert traces.of(()) == ""


def test_only_the_newest_traces_are_remembered() -> None:
    traces = Traces(held=10)
    for sequence in range(1, 101):
        traces.note([event(sequence)])
    found = [sequence for sequence in range(1, 101) if traces.of((f"LOG:{sequence}",))]
    assert found == list(range(found[0], 101))
    assert 10 <= len(found) <= 20
    traces.note_stored([event(0) for _ in range(50)], 200)
    assert traces.of(("LOG:249",)) == GIVEN


def batch(traces: Traces | None, cause: str = "LOG:7") -> tuple[Event, Event]:
    decided = Event(subject="toy.a", data=stored(pod_document()), causes=(cause,) if cause else ())
    made = commit_batch(Decision(events=(decided,), folded=9, now=NOW, took_us=0), TOY, "", CommitPlace(5, 5), traces)
    record, first = made.events
    return msgspec.structs.replace(record, sequence=20), first


def difference(recorded: Event, traces: Traces, cause: str = "LOG:7") -> str:
    record, fresh = batch(None, cause)
    assert isinstance(record.data, Commit)
    recomputed = msgspec.structs.replace(fresh, id="", time=None)
    found = compare("toy", record, record.data, [recorded], [recomputed], traces)
    return found.field if found is not None else ""


def test_replay_recomputes_the_trace_of_a_decision() -> None:
    traces = Traces()
    traces.note([event()])
    _, decided = batch(traces)
    assert trace_of(decided.traceparent) == TRACE
    assert difference(decided, traces) == ""
    forgotten = msgspec.structs.replace(decided, traceparent=traceparent_of(("LOG:7",), decided.id))
    assert difference(forgotten, traces) == "", "the service may have forgotten the cause's trace"
    other = "0af7651916cd43dd8448eb211c80319c"
    own = decided.traceparent
    for wrong in (f"00-{other}-{own[36:]}", f"{own[:36]}{SPAN}-01", f"{own[:53]}00"):
        assert difference(msgspec.structs.replace(decided, traceparent=wrong), traces) == "traceparent"


def test_replay_compares_what_it_can_where_the_cause_is_not_in_the_stretch() -> None:
    traces = Traces()
    traces.note([event()])
    _, decided = batch(traces)
    assert difference(decided, Traces()) == ""
    wrong = f"{decided.traceparent[:36]}{SPAN}-01"
    assert difference(msgspec.structs.replace(decided, traceparent=wrong), Traces()) == "traceparent"


def test_a_decision_without_causes_begins_a_trace_that_follows_from_its_id() -> None:
    _, decided = batch(Traces(), "")
    assert decided.traceparent == ""
    recorded = msgspec.structs.replace(decided, traceparent=traceparent_of((), decided.id))
    assert difference(recorded, Traces(), "") == ""


def line(formatter: logging.Formatter, **extra: str) -> str:
    record = logging.getLogger("test").makeRecord("test", logging.WARNING, "f", 1, "it %s", ("happened",), None, extra=extra)
    return formatter.format(record)


def test_lines_of_the_log_carry_the_trace_of_their_event_or_of_the_request() -> None:
    text, structured = TextFormatter("%(levelname)s %(name)s: %(message)s"), JsonFormatter()
    assert line(text) == "WARNING test: it happened"
    assert "trace_id" not in json.loads(line(structured))
    ids = {"trace_id": TRACE, "span_id": SPAN}
    assert line(text, **about(event())) == f"WARNING test: it happened trace_id={TRACE} span_id={SPAN}"
    assert json.loads(line(structured, **about(event()))).items() >= ids.items()
    token = CURRENT.set(GIVEN)
    try:
        assert json.loads(line(structured)).items() >= ids.items()
        own = traceparent_of(("LOG:1",), "e")
        assert f"trace_id={trace_of(own)}" in line(text, **about(event(traceparent="", causes=("LOG:1",))))
    finally:
        CURRENT.reset(token)


def test_the_trace_of_a_message_that_cannot_be_decoded_is_found_in_its_text() -> None:
    assert found_in(f'{{"type": 5, "traceparent":"{GIVEN}", '.encode()) == GIVEN
    assert found_in(b'{"traceparent":"\xff\xff"}') == ""
    assert found_in(b"") == ""


def test_without_a_collector_nothing_of_tracing_is_imported() -> None:
    program = (
        "import sys; from cotenant.runtime.telemetry import Telemetry; Telemetry('scheduler', 'a').shutdown();"
        "import cotenant_gateway.__main__, cotenant_node_executor.__main__;"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk.trace', 'opentelemetry.exporter.otlp',"
        " 'cotenant.runtime.tracing', 'numpy'))])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={}, check=True)
    assert ran.stdout.strip() == "[]"
