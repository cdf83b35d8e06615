"""Large answers, sent piece by piece: their bytes count until the client has read them.

In: a request and its complete answer. Out: the answer, sent or left to aiohttp; an ApiError (429) beyond the bound.
"""

from __future__ import annotations

from aiohttp import web

from cotenant_gateway.http.clients.connections import connection_of
from cotenant_gateway.http.clients.limits import SMALL_BYTES
from cotenant_gateway.statuses import too_many


async def sent_in_pieces(request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
    """Send a large answer piece by piece, so that at most one piece waits in the transport; its bytes are reserved meanwhile.

    Smaller ones are left to aiohttp. Raises ApiError (429) if too many bytes wait for clients to read them.
    """
    body = response.body if isinstance(response, web.Response) else None
    if not isinstance(body, bytes) or len(body) <= SMALL_BYTES or request.method == "HEAD":
        return response
    connection = connection_of(request)
    if not connection.owner.reserve_answer(connection, len(body)):
        raise too_many("answers that other clients have yet to read fill the memory reserved for them; try again later")
    streamed = web.StreamResponse(status=response.status, headers=response.headers)
    streamed.content_length = len(body)
    await streamed.prepare(request)
    view = memoryview(body)
    for start in range(0, len(body), SMALL_BYTES * 4):
        await streamed.write(view[start : start + SMALL_BYTES * 4])
    await streamed.write_eof()
    return streamed
