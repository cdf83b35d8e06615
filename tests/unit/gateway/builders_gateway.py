"""Builders for the gateway's tests: documents, facts on the log, and a read model that they are folded into."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from cotenant.api.definitions import Registry
from cotenant.api.kinds import Kind
from cotenant.domain.quota.gates import QuotaGates
from cotenant.events.envelope import Event, Payload
from cotenant.events.node.runs import ContainerRun, RunPhase, RunStatus
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.kinds.pods import PODS
from cotenant.kinds.registry import REGISTRY
from cotenant.log.plans import Plan
from cotenant.model.subjects import object_subject, placement_subject, run_subject
from cotenant_gateway.planning.built_in import BUILT_IN_OBJECTS
from cotenant_gateway.planning.creations import plan_creation
from cotenant_gateway.planning.deletions import DeletionRequest, plan_deletion
from cotenant_gateway.planning.documents import Planned
from cotenant_gateway.planning.updates import plan_patch
from cotenant_gateway.read_model.core import ALL_OFF, AS_BY_DEFAULT, GatewayCore
from cotenant_gateway.read_model.settings import AdmissionSettings
from cotenant_gateway.statuses import ApiError
from tests.builders import container, pod_document

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def kind(plural: str) -> Kind:
    """The kind with this plural."""
    return next(found.kind for found in REGISTRY if found.kind.plural == plural)


def manifest(name: str = "web", **given: Any) -> dict[str, Any]:
    """A pod as a user asks for it; `given` are arguments of `pod_document`, which replace its label, its container, or members
    of the spec."""
    containers = [container(image="app:1", requests={"cpu": "500m"}, limits={"cpu": "1"})]
    return pod_document(name, namespace="", uid="", **{"labels": {"app": name}, "containers": containers, **given})


def refusal_of(write: Callable[[], object]) -> ApiError | None:
    """What a write is refused with; None where it is taken."""
    try:
        write()
    except ApiError as error:
        return error
    return None


def causes(error: ApiError) -> dict[str, str]:
    """Field to message of what is refused."""
    return {cause.field: cause.message for cause in error.status.details.causes} if error.status.details else {}


def as_json(document: object) -> bytes:
    """The document's bytes."""
    return json.dumps(document).encode()


class World:
    """A read model and the log in front of it: what is stored is folded at once."""

    def __init__(
        self, *, built_in: bool = True, kinds: Registry = REGISTRY, gates: QuotaGates = ALL_OFF,
        settings: AdmissionSettings = AS_BY_DEFAULT
    ) -> None:
        self.core = GatewayCore(kinds=kinds, quota_gates=gates, settings=settings)
        self.sequence = 0
        self.now = NOW
        self.events: list[Event] = []
        if built_in:
            for found, name, document in BUILT_IN_OBJECTS:
                self.put(object_subject(found.group, found.plural, "", name), ObjectStored(object=document))
        self.core.loaded()

    def put(self, subject: str, data: Payload, *, tombstone: bool = False) -> Event:
        """Store and fold one fact."""
        self.sequence += 1
        event = Event(subject=subject, data=data, time=self.now, sequence=self.sequence, tombstone=tombstone)
        self.events.append(event)
        self.core.apply(event)
        return event

    def standing(self) -> list[Event]:
        """The last message of each subject, when the tombstones have run out."""
        last = {event.subject: event for event in self.events}
        return [event for event in last.values() if not event.tombstone]

    def store(self, plan: Plan | None) -> None:
        """Store and fold a plan; its expectations must hold."""
        assert plan is not None
        for write in plan.writes:
            known = self._last(write.subject)
            assert write.expected in (None, known), f"{write.subject}: expected {write.expected}, is {known}"
            self.put(write.subject, write.payload, tombstone=write.tombstone)

    def _last(self, subject: str) -> int:
        return next((event.sequence for event in reversed(self.events) if event.subject == subject), 0)

    def create(self, plural: str | Kind, document: object, namespace: str = "default", uid: str = "") -> Planned:
        """Create an object as a client does."""
        found = kind(plural) if isinstance(plural, str) else plural
        planned = plan_creation(
            self.core,
            found,
            namespace if found.namespaced else "",
            as_json(document),
            self.now,
            uid or f"uid-{self.sequence + 1}",
            lambda: "abcde",
        )
        self.store(planned.plan)
        return planned

    def patch(self, plural: str | Kind, name: str, patch: object, namespace: str = "default") -> Planned:
        """Change an object as a client does, by a merge patch."""
        found = kind(plural) if isinstance(plural, str) else plural
        of = namespace if found.namespaced else ""
        planned = plan_patch(self.core, found, of, name, "application/merge-patch+json", as_json(patch))
        if planned.plan is not None:
            self.store(planned.plan)
        return planned

    def delete(self, plural: str, name: str, namespace: str = "default") -> None:
        """Delete an object as a client does."""
        found = kind(plural)
        of = namespace if found.namespaced else ""
        planned = plan_deletion(self.core, found, of, name, DeletionRequest(), self.now)
        if planned.plan is not None:
            self.store(planned.plan)

    def show(self, plural: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """The object as the API shows it."""
        found = kind(plural)
        snapshot = self.core.get(found, namespace if found.namespaced else "", name)
        assert snapshot is not None, f"{plural} {name} does not exist"
        shown: dict[str, Any] = json.loads(snapshot.document)
        return shown

    def uid_of(self, name: str, namespace: str = "default") -> str:
        """A pod's uid."""
        snapshot = self.core.get(PODS, namespace, name)
        assert snapshot is not None
        return snapshot.uid

    def place(self, name: str, node: str = "n1", phase: PlacementPhase = PlacementPhase.BOUND, uid: str = "") -> Event:
        """Store a placement of a pod; GONE is its tombstone."""
        data = Placement(
            node=node, namespace="default", name=name, uid=uid or self.uid_of(name), phase=phase, bound_at=self.now
        )
        return self.put(placement_subject(node, "default", name), data, tombstone=phase is PlacementPhase.GONE)

    def run(
        self,
        name: str,
        phase: RunPhase = RunPhase.RUNNING,
        node: str = "n1",
        exit_code: int | None = None,
        *,
        as_tombstone: bool = True,
    ) -> Event:
        """Store a run report of a pod; of one that was stopped the tombstone of its run, unless an executor of an earlier
        version reports (not `as_tombstone`)."""
        state = "running" if phase is RunPhase.RUNNING else "terminated"
        container = ContainerRun(name="main", state=state, ready=phase is RunPhase.RUNNING, exit_code=exit_code)
        data = RunStatus(
            node=node,
            namespace="default",
            name=name,
            uid=self.uid_of(name),
            phase=phase,
            started_at=self.now,
            containers=(container,),
        )
        return self.put(run_subject(node, "default", name), data, tombstone=phase is RunPhase.STOPPED and as_tombstone)

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)


def raw(document: object) -> msgspec.Raw:
    """The document as Raw."""
    return msgspec.Raw(as_json(document))
