"""Evictions that a node's executor requests over NATS on nodes where kubelet runs the pods.

In: a request's subject, whose last token is the node (nats-server lets each node publish its own only), and its body, an
`EvictionRequest`. Out: the outcome as JSON, or a RequestError. No role is needed: as Kubernetes' NodeRestriction has it, a node
may evict the pods that are placed on it, and no others; budgets hold. Each request is in the audit trail.
"""

from __future__ import annotations

import msgspec

from cotenant.events.migrations import EVICTION_POLICY, EvictionRequest
from cotenant.kinds.pods import PODS
from cotenant.model.subjects import decode_token, tokens
from cotenant.runtime.process import RequestError
from cotenant_gateway.access.attributes import RequestAttributes
from cotenant_gateway.access.audit import Audit
from cotenant_gateway.access.users import authenticated
from cotenant_gateway.http.auth.bus_requests import ADDRESS
from cotenant_gateway.planning.migration_places import node_of
from cotenant_gateway.shell.gateway import Gateway
from cotenant_gateway.statuses import ApiError

NODE_PREFIX = "system:node:"


class NodeEvictions:
    """The endpoint's handler."""

    def __init__(self, gateway: Gateway, audit: Audit) -> None:
        self._gateway = gateway
        self._audit = audit

    async def answer(self, subject: str, body: bytes) -> bytes:
        """Answer a request. Raises RequestError."""
        node = decode_token(tokens(subject)[-1])
        user = authenticated(NODE_PREFIX + node)
        try:
            wanted = msgspec.json.decode(body, type=EvictionRequest)
        except msgspec.MsgspecError as error:
            raise RequestError(400, f"an EvictionRequest cannot be read: {error}") from error
        asked = RequestAttributes("create", "", "pods", "eviction", wanted.namespace, wanted.name)
        code = 403
        try:
            self._check(node, wanted)
            outcome = await self._gateway.evict(wanted, user.name)
            code = 201
            return msgspec.json.encode(outcome)
        except ApiError as error:
            code = error.code
            raise RequestError(error.code, str(error)) from error
        finally:
            self._audit.note(user, "", asked, code, ADDRESS, "")

    def _check(self, node: str, wanted: EvictionRequest) -> None:
        """Raise RequestError for anything but an eviction, within budgets, of a pod that is placed on the node."""
        if wanted.policy != EVICTION_POLICY or wanted.ignore_budgets or wanted.job or wanted.reservation or not wanted.uid:
            raise RequestError(403, f"node {node} may only ask for evictions, by uid and within budgets")
        pod = self._gateway.core.get(PODS, wanted.namespace, wanted.name)
        if pod is not None and pod.stored is not None and pod.uid == wanted.uid and node_of(pod) != node:
            raise RequestError(403, f"node {node} may not evict pod {wanted.namespace}/{wanted.name}: it is not placed there")
