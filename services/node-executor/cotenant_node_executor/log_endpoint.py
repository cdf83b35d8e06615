"""Answers `LogsRequest`: finds the pod on this node by namespace and name, and returns the end of a container's log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from cotenant.events.requests import MAX_LOG_ANSWER_BYTES, LogsRequest
from cotenant.runtime.process import RequestError
from cotenant_node_executor.core.node import ExecutorNode
from cotenant_node_executor.core.placed import DecodedPlacement
from cotenant_node_executor.runtime.interface import LogRequest, PodLogUnavailableError


def read_logs(node: ExecutorNode, request: LogsRequest) -> str:
    """Return the end of the log. Raises RequestError 404 without a log, 400 where the container must be named."""
    placed = node.core.placed.get((request.namespace, request.name))
    if placed is None or (request.uid and placed.placement.uid != request.uid):
        raise RequestError(404, f"pod {request.namespace}/{request.name} is not on node {node.name}")
    try:
        return node.machine.runtime.read_log(
            LogRequest(
                uid=placed.placement.uid,
                container=_container(placed, request.container),
                tail_lines=request.tail_lines,
                limit_bytes=min(max(request.limit_bytes, 0), MAX_LOG_ANSWER_BYTES),
                previous=request.previous,
            )
        )
    except PodLogUnavailableError as error:
        raise RequestError(404, f"pod {request.namespace}/{request.name}: {error}") from error


def _container(placed: DecodedPlacement, asked: str) -> str:
    names = [] if placed.to_run is None else [container.name for container in placed.to_run.pod.spec.containers]
    if asked in names:
        return asked
    pod = placed.placement.name
    if asked:
        raise RequestError(404, f"container {asked} is not valid for pod {pod}: choose one of {', '.join(names)}")
    if len(names) != 1:
        raise RequestError(400, f"a container name must be specified for pod {pod}, choose one of: {', '.join(names)}")
    return names[0]


class HoldsNode(Protocol):
    """An object with the node's current incarnation."""

    @property
    def node(self) -> ExecutorNode: ...


def log_handler(holder: HoldsNode) -> Callable[[bytes], Awaitable[bytes]]:
    """Return the log endpoint of one node."""

    async def answer(data: bytes) -> bytes:
        try:
            request = msgspec.json.decode(data, type=LogsRequest)
        except msgspec.MsgspecError as error:
            raise RequestError(400, f"the request cannot be read: {error}") from error
        text = read_logs(holder.node, request).encode()
        return text[-MAX_LOG_ANSWER_BYTES:]

    return answer
