"""What a client is told when the log does not answer."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from cotenant.log.contract import LogUnavailableError
from cotenant_gateway.http.app import answer_errors


@pytest.mark.parametrize("error", [LogUnavailableError("no leader"), TimeoutError("late")])
@pytest.mark.parametrize(
    ("method", "repeated"), [("GET", True), ("DELETE", True), ("POST", False), ("PUT", False), ("PATCH", False)]
)
async def test_a_client_repeats_by_itself_only_what_may_be_carried_out_twice(
    method: str, repeated: bool, error: Exception
) -> None:
    async def fails(_: web.BaseRequest) -> web.StreamResponse:
        raise error

    answer = await answer_errors(make_mocked_request(method, "/api/v1/namespaces/default/pods"), fails)
    assert answer.status in (503, 504)
    assert ("Retry-After" in answer.headers) is repeated
