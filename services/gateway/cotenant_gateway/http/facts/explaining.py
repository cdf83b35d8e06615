"""`explain/...`: the chain of causes of a pod, a node, a quota, a reservation, back to samples and objects.

In: a name. Out: an `Explanation` as JSON. At most MAX_LOOKUPS causes are looked up, LOOKUPS_AT_ONCE at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from aiohttp import web

from cotenant.domain.quota.names import BUILT_IN_QUOTAS, DEFAULT_TREE, ROOT
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome
from cotenant.events.objects import ObjectDeleted
from cotenant.events.quotas import QuotaRuntime
from cotenant.explain.causes import (
    CauseWalk,
    Explanation,
    explain_node,
    explain_pod,
    explain_quota,
    explain_reservation,
)
from cotenant.explain.quotas import runtime_reasons
from cotenant.kinds.elastic_quotas import ELASTIC_QUOTAS, published_quota
from cotenant.kinds.koordinator.reservations import RESERVATIONS
from cotenant.kinds.nodes import NODES
from cotenant.kinds.pods import PODS
from cotenant.log.contract import LOG
from cotenant.log.nats.log import NatsLog
from cotenant.log.nats.lookups import Lost
from cotenant.model.subjects import eviction_subject, pod_subject, quota_subject
from cotenant_gateway.http.bodies import json_response
from cotenant_gateway.shell.gateway import Gateway
from cotenant_gateway.statuses import not_found

MAX_LOOKUPS = 400
LOOKUPS_AT_ONCE = 16
PROTECTING = ("suppress", "protection")
"""Topics of an executor's actions for services; its events give the figures."""


class Explainer:
    """Answers with causes."""

    def __init__(self, gateway: Gateway, log: NatsLog) -> None:
        self._gateway = gateway
        self._log = log

    async def _walk(self, roots: Sequence[Event]) -> CauseWalk:
        walk = CauseWalk(roots)
        asked = 0
        while asked < MAX_LOOKUPS:
            wanted = walk.wanted()[:LOOKUPS_AT_ONCE]
            if not wanted:
                break
            asked += len(wanted)
            found = await asyncio.gather(*(self._log.find(ref) for ref in wanted))
            for ref, event in zip(wanted, found, strict=True):
                if isinstance(event, Lost):
                    walk.add(ref, None, event.reason)
                else:
                    walk.add(ref, event)
        return walk

    async def pod(self, namespace: str, name: str) -> web.Response:
        """Answer with the chain of causes of a pod, also of one that has ended."""
        pod = self._gateway.core.get(PODS, namespace, name)
        subjects = [eviction_subject(namespace, name)]
        parts: list[Event] = []
        if pod is None:
            # An ended pod is explained as long as HISTORY keeps its tombstone, which names its causes.
            subjects.append(pod_subject(namespace, name))
        else:
            parts = list(pod.parts.values())
            if pod.stored is not None:
                parts += await self._events_at([pod.stored.sequence])
        found = await asyncio.gather(*(self._log.last_known(subject) for subject in subjects))
        uid = pod.uid if pod is not None else next((_uid_of(event) for event in reversed(found) if event is not None), "")
        roots = [*parts, *(event for event in found if event is not None and _uid_of(event) == uid)]
        if not roots:
            raise not_found(PODS, name)
        explanation = explain_pod(namespace, name, roots, await self._walk(roots))
        return json_response(msgspec.json.encode(explanation))

    async def _events_at(self, sequences: Sequence[int]) -> list[Event]:
        found = await asyncio.gather(*(self._log.find(f"{LOG}:{sequence}") for sequence in sequences))
        return [event for event in found if not isinstance(event, Lost)]

    async def node(self, name: str) -> web.Response:
        """Answer with the chain of causes of a node, and of its executor's last actions for services."""
        core = self._gateway.core
        node = core.get(NODES, "", name)
        if node is None:
            raise not_found(NODES, name)
        roots = list(node.parts.values())
        if node.stored is not None:
            roots += await self._events_at([node.stored.sequence])
        did = await asyncio.gather(*(self._log.last_execution(name, topic) for topic in PROTECTING))
        roots += [event for event in did if event is not None]
        explanation: Explanation = explain_node(name, roots, await self._walk(roots))
        return json_response(msgspec.json.encode(explanation))

    async def reservation(self, name: str) -> web.Response:
        """Answer with the chain of causes of a reservation."""
        found = self._gateway.core.get(RESERVATIONS, "", name)
        if found is None or found.stored is None:
            raise not_found(RESERVATIONS, name)
        roots = [*found.parts.values(), *await self._events_at([found.stored.sequence])]
        return json_response(msgspec.json.encode(explain_reservation(name, roots, await self._walk(roots))))

    async def quota(self, name: str) -> web.Response:
        """Answer with the chain of causes of a quota, which is identified by its name alone; a built-in one needs no object."""
        quotas = list(self._gateway.core.objects(ELASTIC_QUOTAS))
        found = next((snapshot for snapshot in quotas if snapshot.address.name == name), None)
        if found is not None:
            roots, quota = list(found.parts.values()), published_quota(found)
            if found.stored is not None:
                roots += await self._events_at([found.stored.sequence])
        else:
            roots = await self._built_in(name)
            quota = next((event.data for event in roots if isinstance(event.data, QuotaRuntime)), None)
            if quota is None:
                raise not_found(ELASTIC_QUOTAS, name)
        reasons: list[str] = []
        if quota is not None:
            above = await self._log.last_known(quota_subject(quota.tree, quota.parent or ROOT))
            parent = above.data if above is not None and isinstance(above.data, QuotaRuntime) else None
            published = (published_quota(snapshot) for snapshot in quotas if snapshot is not found)
            place = (quota.tree, quota.parent)
            siblings = [each for each in published if each is not None and (each.tree, each.parent) == place]
            reasons = list(runtime_reasons(quota, parent, siblings))
        walk = await self._walk(roots)
        namespace = found.address.namespace if found is not None else ""
        explanation = explain_quota(namespace, quota, name, reasons, roots, walk)
        return json_response(msgspec.json.encode(explanation))

    async def _built_in(self, name: str) -> list[Event]:
        """What was published last of a quota that needs no object, in the default tree."""
        event = await self._log.last_known(quota_subject(DEFAULT_TREE, name)) if name in BUILT_IN_QUOTAS else None
        return [event] if event is not None and not event.tombstone else []


def _uid_of(event: Event) -> str:
    return event.data.uid if isinstance(event.data, (EvictionOutcome, ObjectDeleted)) else ""
