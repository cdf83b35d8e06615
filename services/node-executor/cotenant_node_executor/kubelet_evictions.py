"""Requests evictions from the gateway on a node whose pods kubelet runs, as only kubelet may end them.

In: the ordered evictions. Out: requests to the gateway, repeated with a growing pause while the orders hold
(`cotenant.runtime.requests`): a budget that has no disruption left now may have one later. The gateway deletes the pod, kubelet
ends it, and the report follows (`core.kubelet_pods`).

Bound: the pods of the node; as many requests in progress as `cotenant.runtime.requests` allows.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

import msgspec

from cotenant.engine.core import Request
from cotenant.events.migrations import EvictionRequest, node_evict_subject
from cotenant.runtime.follower import utc_now
from cotenant.runtime.process import Host
from cotenant.runtime.requests import Requests
from cotenant_node_executor.kubelet_machine import KubeletMachine

LOOK_SECONDS = 0.5


class KubeletEvictions:
    """Of one node; `cotenant.engine.core.Requesting`."""

    def __init__(self, node: str, machine: KubeletMachine) -> None:
        self._node, self._machine = node, machine

    def requests(self, now: datetime) -> list[Request]:
        """Return a request for each eviction that is still ordered."""
        del now
        subject = node_evict_subject(self._node)
        return [
            Request(
                subject=subject,
                key=f"{asked.namespace}/{asked.name} {uid}",
                body=msgspec.json.encode(
                    EvictionRequest(
                        namespace=asked.namespace,
                        name=asked.name,
                        uid=uid,
                        reason=asked.why,
                        grace_period_seconds=asked.grace_seconds,
                    )
                ),
            )
            for uid, asked in sorted(self._machine.asked_evictions.items())
        ]

    async def run(self, host: Host) -> None:
        """Send requests until the process is stopped."""
        requests = Requests(host, self)
        try:
            while not host.stopping.is_set():
                requests.send(utc_now())
                try:
                    async with asyncio.timeout(LOOK_SECONDS):
                        await host.stopping.wait()
                except TimeoutError:
                    continue
        finally:
            await requests.close()
