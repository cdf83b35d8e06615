"""Answers the questions of a deciding service's definition on NATS.

In: requests on `cotenant.<service>.<name>`. Out: the core's answer, or a refusal that says what to do. A question is answered
in slices between the service's own work, from the core's state at that time.

Bounds: one question of a name at a time; ANSWER_SECONDS for each; MAX_QUESTION_BYTES.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from cotenant.engine.core import Core
from cotenant.engine.definition import Question
from cotenant.runtime.process import Host, RequestError

ANSWER_SECONDS = 5.0
MAX_QUESTION_BYTES = 1 << 20


async def serve_questions(
    host: Host, questions: tuple[Question, ...], core: Callable[[], Core | None], clock: Callable[[], datetime]
) -> None:
    """Serve the endpoints. `core`: the present one once it has loaded, None before."""
    for question in questions:
        await host.endpoint(question.name, Answering(question, core, clock))


class Answering:
    """The handler of one endpoint."""

    def __init__(self, question: Question, core: Callable[[], Core | None], clock: Callable[[], datetime]) -> None:
        self._question = question
        self._core = core
        self._clock = clock
        self._busy = False

    async def __call__(self, body: bytes) -> bytes:
        """Return the answer. Raises RequestError."""
        name = self._question.name
        if len(body) > MAX_QUESTION_BYTES:
            raise RequestError(413, f"{name}: the request has {len(body)} bytes; at most {MAX_QUESTION_BYTES} are read")
        if self._busy:
            raise RequestError(429, f"{name}: another question is being answered; ask again in a few seconds")
        core = self._core()
        if core is None:
            raise RequestError(503, f"{name}: the service has not loaded yet; ask again once it is ready")
        self._busy = True
        try:
            return await self._answer(core, body)
        finally:
            self._busy = False

    async def _answer(self, core: Core, body: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        until = loop.time() + ANSWER_SECONDS
        for answer in self._question.answer(core, self._clock(), body):
            if answer is not None:
                return answer
            if loop.time() > until:
                raise RequestError(504, f"{self._question.name}: there is no answer within {ANSWER_SECONDS:.0f} s")
            await asyncio.sleep(0)
        raise RequestError(500, f"{self._question.name}: the core gave no answer")
