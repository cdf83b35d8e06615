"""Questions that a deciding service answers from its core's state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from cotenant.engine.core import Core
from cotenant.engine.definition import Question
from cotenant.runtime.process import RequestError
from cotenant.runtime.questions import MAX_QUESTION_BYTES, Answering
from cotenant_quota_tree.definition import DEFINITION, QuotaTreeConfig

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def answering(steps: list[bytes | None], *, loaded: bool = True) -> Answering:
    def answer(_: Core, now: datetime, body: bytes) -> Iterator[bytes | None]:
        assert now == NOON
        assert body == b"?"
        yield from steps

    core = DEFINITION.make_core(QuotaTreeConfig()) if loaded else None
    return Answering(Question("toy", answer), lambda: core, lambda: NOON)


def refusal(handler: Answering, body: bytes = b"?") -> RequestError:
    with pytest.raises(RequestError) as caught:
        asyncio.run(handler(body))
    return caught.value


def test_the_answer_is_what_follows_the_slices() -> None:
    assert asyncio.run(answering([None, None, b"yes", b"never read"])(b"?")) == b"yes"


def test_a_service_that_loads_refuses_and_says_when_to_ask_again() -> None:
    found = refusal(answering([b"yes"], loaded=False))
    assert found.code == 503
    assert "once it is ready" in found.message


def test_a_request_that_is_too_large_is_not_read() -> None:
    assert refusal(answering([b"yes"]), b"x" * (MAX_QUESTION_BYTES + 1)).code == 413


def test_no_answer_is_an_error() -> None:
    assert refusal(answering([None])).code == 500


def test_one_question_is_answered_at_a_time_and_the_next_one_afterwards() -> None:
    handler = answering([None, b"yes"])

    async def both() -> tuple[bytes | BaseException, ...]:
        return tuple(await asyncio.gather(handler(b"?"), handler(b"?"), return_exceptions=True))

    first, second = asyncio.run(both())
    assert first == b"yes"
    assert isinstance(second, RequestError)
    assert second.code == 429
    assert asyncio.run(handler(b"?")) == b"yes"
