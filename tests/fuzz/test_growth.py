"""What a message costs a core grows with its size, not with the square of it: counted in calls, whatever the machine does."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any

import pytest

from cotenant.model.subjects import matches
from tests.fuzz.cases import said
from tests.fuzz.cores import SUBJECTS
from tests.fuzz.extremes import NOW
from tests.fuzz.facts import Message, stream_of

MEMBERS = 100
SPARE_CALLS = 20_000
MESSAGES = 12


def calls_of(work: Callable[[], object]) -> int:
    """Count the calls of functions, those of the interpreter's own among them."""
    count = 0

    def note(_frame: FrameType, what: str, _argument: object) -> None:
        nonlocal count
        if what in ("call", "c_call"):
            count += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def grown(value: Any, members: int) -> Any:
    """A document whose lists and maps of texts have so many members, each once below another."""
    if isinstance(value, dict):
        made = {name: grown(each, members) for name, each in value.items()}
        if made and all(isinstance(each, str) for each in made.values()) and len(made) < 4:
            made |= {f"k{number}.example.com/x": "v" for number in range(members)}
        return made
    if isinstance(value, list) and value:
        first = grown(value[0], 1)
        return [_numbered(first, number) for number in range(members)]
    return value


def _numbered(value: Any, number: int) -> Any:
    if isinstance(value, dict):
        return {name: f"{each}-{number}" if name in ("name", "uid", "key") else each for name, each in value.items()}
    return f"{value}-{number}" if isinstance(value, str) else value


@pytest.mark.parametrize("service", sorted(SUBJECTS))
def test_twice_as_many_members_cost_a_core_little_more_than_twice_as_many_calls(service: str) -> None:
    for seed in range(MESSAGES):
        message = said(service, SUBJECTS[service]().filters, Random(seed), 0.0)
        if message is None:
            continue
        envelope = json.loads(message.data)
        once, twice = (
            _cost(service, message, {**envelope, "data": grown(envelope["data"], n)}) for n in (MEMBERS, 2 * MEMBERS)
        )
        assert twice <= 2.6 * once + SPARE_CALLS, f"{message.subject}: {once} calls, then {twice}: {message.data[:300]!r}"


def _cost(service: str, message: Message, envelope: dict[str, Any]) -> int:
    subject = SUBJECTS[service]()
    assert any(matches(each, message.subject) for each in subject.filters)
    changed = Message(message.subject, json.dumps(envelope).encode(), message.tombstone)
    event = subject.journal.take(changed, stream=stream_of(message.subject))
    if event is None:
        return 0

    def work() -> None:
        subject.fold(event)
        subject.act(NOW, Random(1), 0.0)

    return calls_of(work)
