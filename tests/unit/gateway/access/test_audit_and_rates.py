"""What is recorded of requests, and how fast one caller may ask."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cotenant.engine.commit import Identity
from cotenant.events.audit import Audited, AuditRecord
from cotenant.events.envelope import Event, decode_event, encode_event
from cotenant.explain.sentences import sentence
from cotenant.log.contract import EXECUTION
from cotenant_gateway.access import audit as audits
from cotenant_gateway.access.attributes import RequestAttributes
from cotenant_gateway.access.audit import Audit
from cotenant_gateway.access.rates import MAX_CALLERS, Rate, TokenBuckets
from cotenant_gateway.access.users import authenticated

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANNA = authenticated("anna", ("team",))
WRITE = RequestAttributes("create", "", "pods", "", "default", "web")
READ = RequestAttributes("list", "", "pods", "", "default")


class Confirming:
    """A log that confirms what it is sent, or not."""

    def __init__(self) -> None:
        self.confirms = True
        self.sent: list[Event] = []

    async def publish(self, event: Event) -> int | None:
        self.sent.append(event)
        return len(self.sent) if self.confirms else None


@pytest.fixture
def log() -> Confirming:
    return Confirming()


@pytest.fixture
def audit(log: Confirming) -> Audit:
    return Audit(log, Identity(service="gateway", replica="g1"), lambda: NOW)  # type: ignore[arg-type]


def note(audit: Audit, asked: RequestAttributes = WRITE, code: int = 201) -> None:
    audit.note(ANNA, "", asked, code, "10.0.0.1", "kubectl/1")


async def test_writes_and_refusals_are_recorded_and_reads_are_not(audit: Audit, log: Confirming) -> None:
    note(audit, READ, 200)
    note(audit, WRITE, 429)
    await audit.flush()
    assert not log.sent
    note(audit)
    note(audit, READ, 403)
    audit.note(None, "", READ, 401, "10.0.0.1", "curl")
    await audit.flush()
    (event,) = log.sent
    assert (event.stream, event.subject) == (EXECUTION, "execution._.audit")
    assert isinstance(event.data, Audited)
    first, refused, unknown = event.data.records
    assert first == AuditRecord(
        time=NOW,
        user="anna",
        groups=("team", "system:authenticated"),
        verb="create",
        resource="pods",
        namespace="default",
        name="web",
        code=201,
        address="10.0.0.1",
        user_agent="kubectl/1",
    )
    assert (refused.verb, refused.code, unknown.user, unknown.code) == ("list", 403, "", 401)
    again = decode_event(encode_event(event), subject=event.subject, stream=EXECUTION, sequence=1)
    assert again.data == event.data
    assert sentence(event) == "g1 answered 3 requests of anna, nobody, 2 of them with a refusal"


async def test_what_nobody_confirms_is_sent_again_as_it_was(audit: Audit, log: Confirming) -> None:
    log.confirms = False
    note(audit)
    await audit.flush()
    note(audit, WRITE, 409)
    await audit.flush()
    log.confirms = True
    await audit.flush()
    first, second, third, last = log.sent
    assert first == second == third
    assert isinstance(last.data, Audited)
    assert [record.code for record in last.data.records] == [409]
    assert last.id != first.id


async def test_what_cannot_wait_is_counted(audit: Audit, log: Confirming, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "MAX_WAITING", 3)
    monkeypatch.setattr(audits, "RECORDS_AN_EVENT", 2)
    for _ in range(5):
        note(audit)
    await audit.flush()
    found = [event.data for event in log.sent if isinstance(event.data, Audited)]
    assert [(len(each.records), each.dropped) for each in found] == [(2, 2), (1, 0)]


async def test_texts_are_short_and_can_be_encoded(audit: Audit, log: Confirming) -> None:
    audit.note(ANNA, "boss\udcff", RequestAttributes("create", path="/x" * 999), 403, "::1", "\udcff" * 999)
    await audit.flush()
    assert encode_event(log.sent[0])
    assert isinstance(log.sent[0].data, Audited)
    assert len(log.sent[0].data.records[0].path) == audits.MAX_TEXT


def test_a_caller_is_held_to_a_rate_and_others_are_not() -> None:
    buckets = TokenBuckets(Rate(2.0, 4.0))
    assert [buckets.take("anna", 0.0) for _ in range(6)] == [True] * 4 + [False] * 2
    assert buckets.take("berta", 0.0)
    assert not buckets.take("anna", 0.4)
    assert buckets.take("anna", 0.9)
    assert [buckets.take("anna", 1000.0) for _ in range(5)] == [True] * 4 + [False]
    assert buckets.refused == 4
    unlimited = TokenBuckets(Rate(0.0, 0.0))
    assert all(unlimited.take("anna", 0.0) for _ in range(1000))


def test_callers_are_forgotten_the_longest_ago_first() -> None:
    buckets = TokenBuckets(Rate(1.0, 1.0))
    for number in range(MAX_CALLERS + 1):
        assert buckets.take(f"user-{number}", 0.0)
    assert buckets.take("user-0", 0.0)
    assert not buckets.take(f"user-{MAX_CALLERS}", 0.0)
