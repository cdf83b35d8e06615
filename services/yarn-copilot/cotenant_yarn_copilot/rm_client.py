"""REST client for the ResourceManagers of one cluster: find the active one, list its nodes, set a total and read it back.

In: the base URLs of the cluster's ResourceManagers. Out: typed responses, or ResourceManagerError with the call and its URL.

Only an ACTIVE ResourceManager is called: before it is active it answers updates with 200 and ignores them. A standby answers
307; redirects are not followed, the active one is looked up again. The response to an update may carry the old total, so the
node is read until it shows the new one, at most READ_BACK_TRIES times. Every call has a timeout, and network failures are
tried CALL_TRIES times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import quote

import aiohttp
import tenacity

from cotenant_yarn_copilot.capacity import YarnResource
from cotenant_yarn_copilot.rm_messages import (
    ACTIVE,
    NEVER_KILL_MS,
    NODE_STATES,
    AnswerError,
    RmNode,
    read_info,
    read_node,
    read_nodes,
    update_body,
)

CALL_TRIES = 3
CALL_SECONDS = 5.0
READ_BACK_TRIES = 20
READ_BACK_PAUSE_SECONDS = 0.1
MAX_REASON = 300


class ResourceManagerError(RuntimeError):
    """The cluster is unreachable or refused a call; the message names the call and the reason."""


class NotConfirmedError(ResourceManagerError):
    """The ResourceManager accepted the update but still reports another total."""


class ResourceManagerClient:
    """One YARN cluster. `active`: the URL last seen ACTIVE; empty at first and after a failure."""

    def __init__(self, session: aiohttp.ClientSession, urls: Sequence[str], *, user: str = "") -> None:
        self._session = session
        self._urls = tuple(url.rstrip("/") for url in urls)
        self._user = user
        self.active = ""

    async def find_active(self) -> str:
        """Return the URL of the active ResourceManager. Raises ResourceManagerError with each one's answer."""
        self.active = ""
        answers = []
        for url in self._urls:
            try:
                info = read_info(await self._get(f"{url}/ws/v1/cluster/info"))
            except (ResourceManagerError, AnswerError) as error:
                answers.append(str(error))
                continue
            if info.ha_state == ACTIVE:
                self.active = url
                return url
            answers.append(f"{url} is {info.ha_state or 'of unknown state'}")
        raise ResourceManagerError("no ResourceManager is ACTIVE: " + "; ".join(answers or ["none is configured"]))

    async def nodes(self) -> tuple[RmNode, ...]:
        """Return the NodeManagers that the active ResourceManager lists, in every state."""
        return read_nodes(await self._ask(f"/ws/v1/cluster/nodes?states={NODE_STATES}"))

    async def node(self, node_id: str) -> RmNode:
        """Return one NodeManager."""
        return read_node(await self._ask(f"/ws/v1/cluster/nodes/{quote(node_id, safe=':')}"))

    async def set_total(self, node_id: str, total: YarnResource, over_commit_timeout_ms: int = NEVER_KILL_MS) -> None:
        """Request a new total for a node; `confirm` checks the result."""
        body = update_body(total, over_commit_timeout_ms)
        await self._ask(f"/ws/v1/cluster/nodes/{quote(node_id, safe=':')}/resource", body)

    async def confirm(self, node_id: str, total: YarnResource) -> RmNode:
        """Return the node once it reports the total. Raises NotConfirmedError after READ_BACK_TRIES readings."""
        node = await self.node(node_id)
        for _ in range(READ_BACK_TRIES - 1):
            if node.total == total:
                return node
            await asyncio.sleep(READ_BACK_PAUSE_SECONDS)
            node = await self.node(node_id)
        if node.total == total:
            return node
        raise NotConfirmedError(
            f"{self.active} reports {node.total.vcores} vcores and {node.total.memory_mb} MB for {node_id}"
            f" after {total.vcores} vcores and {total.memory_mb} MB were set"
        )

    async def _ask(self, path: str, body: bytes | None = None) -> bytes:
        base = self.active or await self.find_active()
        try:
            return await (self._get(base + path) if body is None else self._post(base + path, body))
        except ResourceManagerError:
            self.active = ""
            raise

    async def _get(self, url: str) -> bytes:
        return await self._call("GET", url, None)

    async def _post(self, url: str, body: bytes) -> bytes:
        return await self._call("POST", url, body)

    async def _call(self, method: str, url: str, body: bytes | None) -> bytes:
        try:
            async for attempt in tenacity.AsyncRetrying(
                stop=tenacity.stop_after_attempt(CALL_TRIES),
                wait=tenacity.wait_exponential(0.1, max=1.0),
                retry=tenacity.retry_if_exception_type((aiohttp.ClientConnectionError, TimeoutError)),
                reraise=True,
            ):
                with attempt:
                    return await self._once(method, url, body)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ResourceManagerError(f"{method} {url}: {type(error).__name__}: {error}") from error
        raise ResourceManagerError(f"{method} {url}: no attempt was made")

    async def _once(self, method: str, url: str, body: bytes | None) -> bytes:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        async with self._session.request(
            method,
            url,
            data=body,
            headers=headers,
            params={"user.name": self._user} if self._user else None,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=CALL_SECONDS),
        ) as response:
            answer = await response.read()
            if response.status != 200:
                detail = answer[:MAX_REASON].decode(errors="replace").strip()
                raise ResourceManagerError(f"{method} {url}: {response.status} {response.reason}: {detail}")
            return answer
