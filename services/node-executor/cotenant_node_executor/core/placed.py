"""A placement with its manifest decoded, or the reason why the pod cannot run here.

In: a placement event. Out: the pod with its placement's identity, for the runtime and the strategies; or a refusal as text and
the report that carries it.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from cotenant.api.objects.pod import Pod, PodSpec, decode_pod
from cotenant.api.validation.process_runtime import process_runtime_errors, root_fields
from cotenant.events.envelope import Event
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.by_identity import by_identity
from cotenant.model.quantities import QuantityError
from cotenant.model.values import Value
from cotenant_node_executor.runtime.interface import PodToRun
from cotenant_node_executor.strategies.pod_view import PodView, pod_view

REASON_UNSUPPORTED = "UnsupportedPod"

Key = tuple[str, str]
"""Namespace and name."""

_NAME = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,251}[A-Za-z0-9])?")
"""Valid names of folders and control groups."""


def sequence_of(ref: str) -> int:
    """Return the sequence of a reference such as `LOG:7`; 0 of an empty one."""
    return int(ref.partition(":")[2] or 0)


class DecodedPlacement(Value, frozen=True):
    """A placement with its manifest decoded. `refusal`: why it cannot run here, `reason`: the same in one word;
    `traceparent`: that of its event."""

    placement: Placement
    ref: str
    to_run: PodToRun | None
    view: PodView | None
    refusal: str = ""
    reason: str = REASON_UNSUPPORTED
    traceparent: str = ""

    @property
    def names_node(self) -> bool:
        """Whether the pod names its node itself, and may still be started."""
        if self.to_run is None or self.refusal or self.placement.phase is PlacementPhase.TERMINATING:
            return False
        return bool(self.to_run.pod.spec.node_name)


class _ContainerStatus(Struct, frozen=True, rename="camel"):
    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")


class _PodStatus(Struct, frozen=True, rename="camel"):
    container_statuses: list[_ContainerStatus] = []


class _Manifest(Struct, frozen=True):
    status: _PodStatus = _PodStatus()


_STATUS = msgspec.json.Decoder(_Manifest)


def container_ids(pod: msgspec.Raw) -> dict[str, str]:
    """Names of containers by id, from kubelet's status in a manifest; empty if it cannot be read."""
    try:
        statuses = _STATUS.decode(pod).status.container_statuses
    except msgspec.MsgspecError:
        return {}
    return {each.container_id: each.name for each in statuses if each.container_id}


def read_placement(
    event: Event,
    data: Placement,
    node: str,
    plain_processes: bool,
    root_pods: bool = False,
    *,
    of_kubelet: bool = False,
) -> DecodedPlacement:
    """Decode a placement's manifest; with `plain_processes` fields that host processes do not support are refused, and without
    `root_pods` pods of root. `of_kubelet`: kubelet runs the pod."""
    if not _NAME.fullmatch(data.uid):
        refusal = f"uid {data.uid!r} cannot name a folder"
        return DecodedPlacement(data, event.ref, None, None, refusal, traceparent=event.traceparent)
    try:
        pod = _identified(decode_pod(data.pod), data)
        view = pod_view(pod)
    except (msgspec.MsgspecError, QuantityError) as error:
        refusal = f"the manifest cannot be read: {error}"
        return DecodedPlacement(data, event.ref, None, None, refusal, traceparent=event.traceparent)
    refusals = [str(error) for error in process_runtime_errors(pod)] if plain_processes else []
    if plain_processes and not root_pods:
        refusals += [f"{field}: this node runs no pods as root (--allow-root-pods)" for field in root_fields(pod)]
    refusals += _name_refusals(pod.spec)
    ids = container_ids(data.pod) if of_kubelet else {}
    to_run = PodToRun(pod, view.group, node, traceparent=event.traceparent, container_ids=ids)
    return DecodedPlacement(data, event.ref, to_run, view, "; ".join(refusals), traceparent=event.traceparent)


@by_identity
def _name_refusals(spec: PodSpec) -> list[str]:
    """Errors in the containers' names."""
    names = [container.name for container in spec.containers]
    refusals = [f"container name {name!r} cannot name a folder" for name in names if not _NAME.fullmatch(name)]
    if len(set(names)) < len(names) or not names:
        refusals.append("containers need unique names")
    return refusals


def _identified(pod: Pod, placement: Placement) -> Pod:
    """The manifest with uid, namespace and name of its placement, from which groups and folders get their names."""
    own = pod.metadata
    if own.uid == placement.uid and own.namespace == placement.namespace and own.name == placement.name:
        return pod
    metadata = msgspec.structs.replace(own, uid=placement.uid, namespace=placement.namespace, name=placement.name)
    return msgspec.structs.replace(pod, metadata=metadata)


def refused_report(placed: DecodedPlacement) -> RunStatus:
    """Return the report of a pod that cannot run here."""
    placement = placed.placement
    ending = placement.phase is PlacementPhase.TERMINATING
    return RunStatus(
        node=placement.node,
        namespace=placement.namespace,
        name=placement.name,
        uid=placement.uid,
        phase=RunPhase.STOPPED if ending else RunPhase.FAILED,
        reason=placement.reason if ending else placed.reason,
        message=placed.refusal,
    )
