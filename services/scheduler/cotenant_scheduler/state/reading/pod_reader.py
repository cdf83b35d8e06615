"""Reads pod documents into shapes.

In: the document of a pod, the values of priority classes. Out: `ParsedPod` with its `Shape`; pods of the same needs have the
same one.

Bounds: shapes live as long as a pod (one pod has one) or a cache has them. Known documents are recognised by the bytes of
their relevant parts; at most 16,384 of these are cached, then all are dropped; as many texts of labels and the like, the last
ones.

Over 300 lines: what is read of a pod, and what makes two pods alike, is changed together.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Hashable, Mapping, Sequence, Set
from copy import deepcopy
from functools import lru_cache
from typing import Protocol
from weakref import WeakValueDictionary

import msgspec

from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.api.objects.pod_resources import pod_limits, pod_requests
from cotenant.domain.qos import priority_default
from cotenant.domain.quota.trees.demands import ENDED_PHASES
from cotenant.domain.tolerations import effective_tolerations
from cotenant.model.names import RESOURCE_PODS
from cotenant.model.quantities import QuantityError
from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs
from cotenant_scheduler.state.load.load_estimate import estimate_pod, scaling_factors
from cotenant_scheduler.state.reading.default_spread import Defaulting, PodTopologySpreadArgs, constraints_of, controlled
from cotenant_scheduler.state.reading.pod_documents import Owner, PodDocument, PodHead, PodMetadataView
from cotenant_scheduler.state.reading.pod_needs import host_ports, images, nonzero_requests
from cotenant_scheduler.state.reading.pod_traits import PodTraits, traits_of
from cotenant_scheduler.state.reading.pod_volumes import MARKS
from cotenant_scheduler.state.reading.priorities import PREEMPT_NEVER, PriorityValues
from cotenant_scheduler.state.reading.priorities import preempts as has_others_end
from cotenant_scheduler.state.reading.relations import Relations, SelectorIndex
from cotenant_scheduler.state.reading.shapes import ParsedPod, Shape, ShapeKey
from cotenant_scheduler.state.reading.templates import RecentDocument, Template, facts_of, recent_document

RECOGNITIONS_CACHED = 16_384
_POD_AFFINITY = re.compile(rb'"pod(Anti)?Affinity"')
_DECODER = msgspec.json.Decoder(PodDocument)
_HEAD = msgspec.json.Decoder(PodHead)
_TEXTS = msgspec.json.Decoder(dict[str, str])
_OWNERS = msgspec.json.Decoder(list[Owner])


class ShapeError(ValueError):
    """The pod cannot be scheduled as it is written; the message says what is wrong with it."""


class PodReaderPlugin(Protocol):
    """A plugin that reads something of a pod's document that no other part of its shape contains."""

    name: str
    annotations: tuple[str, ...]
    """What it reads of the metadata, besides the labels of class and priority."""

    def asks(self, pod: Pod) -> Hashable:
        """Return what the pod requests of the plugin; None for nothing. Raises ShapeError."""


def _has_volumes(volumes: msgspec.Raw) -> bool:
    """Whether any of them matters to where the pod is placed."""
    return bool(volumes) and any(mark in bytes(volumes) for mark in MARKS)


@lru_cache(maxsize=RECOGNITIONS_CACHED)
def _traits(labels: bytes, annotations: bytes) -> PodTraits:
    """Labels and annotations with their traits. Raises DecodeError."""
    return traits_of(_texts(labels), _texts(annotations))


@lru_cache(maxsize=RECOGNITIONS_CACHED)
def _texts(document: bytes) -> dict[str, str]:
    """Labels or annotations, read-only. Raises DecodeError."""
    return _TEXTS.decode(document) if document else {}


@lru_cache(maxsize=RECOGNITIONS_CACHED)
def _owner_kinds(document: bytes) -> frozenset[str]:
    """The kinds of a pod's owners. Raises DecodeError."""
    return frozenset(owner.kind for owner in _OWNERS.decode(document)) if document else frozenset()


class PodReader:
    """Reads pod documents and gives pods of the same needs the same shape."""

    def __init__(
        self,
        args: LoadAwareArgs,
        readers: Sequence[PodReaderPlugin] = (),
        default_preemption: str = "",
        spread: PodTopologySpreadArgs | None = None,
    ) -> None:
        """`default_preemption`: the preemption policy of pods without a label of it; empty: that of their spec. `spread`: which
        constraints pods get that state none."""
        self._args = args
        self._spread = spread or PodTopologySpreadArgs()
        self._default_preemption = default_preemption
        self._readers = tuple(readers)
        self._annotations = tuple(sorted({name for reader in readers for name in reader.annotations}))
        self._resources = args.tracked_resources()
        self._wants: set[tuple[object, ...]] = set()
        self._alike: dict[tuple[object, ...], Template] = {}
        self._recognised: dict[tuple[object, ...], Shape | str] = {}
        self._recent: RecentDocument | None = None
        self.selectors = SelectorIndex()
        self._shapes: WeakValueDictionary[ShapeKey, Shape] = WeakValueDictionary()

    def __deepcopy__(self, memo: dict[int, object]) -> PodReader:
        """A copy keeps the same shapes: they are compared by identity."""
        copied = PodReader(self._args, deepcopy(self._readers, memo), self._default_preemption, self._spread)
        memo[id(self)] = copied
        copied.selectors = deepcopy(self.selectors, memo)
        copied._wants.update(self._wants)
        copied._alike.update(self._alike)
        copied._recognised.update(self._recognised)
        copied._shapes.update(self._shapes)
        return copied

    def read(self, document: msgspec.Raw | bytes, priorities: PriorityValues) -> ParsedPod:
        """Return the facts of a pod. Raises msgspec.DecodeError if the document is no pod at all."""
        if self.selectors.selectors or self._args.allow_customize_estimation:
            return self._read(document, priorities)
        # Pods of one template differ only in their metadata.
        head = _HEAD.decode(document)
        metadata = head.metadata
        recent = self._recent
        if recent is not None and recent.is_of(head, priorities.version):
            return facts_of(metadata, recent.template, recent.traits)
        traits = _traits(bytes(metadata.labels), bytes(metadata.annotations))
        alike = (
            bytes(head.spec),
            bytes(head.status),
            traits.classes,
            _owner_kinds(bytes(metadata.owner_references)),
            priorities.version,
            self._annotations_read(traits.annotations),
        )
        template = self._alike.get(alike)
        if template is not None and not template.alone:
            self._recent = recent_document(head, priorities.version, template, traits)
            return facts_of(metadata, template, traits)
        facts = self._read(document, priorities)
        if facts.shape is not None and not self.selectors.selectors:
            if len(self._alike) >= RECOGNITIONS_CACHED:
                self._alike.clear()
            spec = _DECODER.decode(document).spec
            grace = PodMetadataView().grace_seconds(spec.termination_grace_period_seconds)
            self._alike[alike] = Template(facts, grace, _has_volumes(spec.volumes))
        return facts

    def _annotations_read(self, annotations: Mapping[str, str]) -> tuple[str | None, ...]:
        if not annotations:
            return ()
        return tuple([annotations.get(name) for name in self._annotations])

    def forget_unheld(self) -> Set[int]:
        """Drop selectors without a holder, and what is cached by their numbers; returns these numbers."""
        forgotten = self.selectors.forget_unheld()
        if forgotten:
            self._wants.clear()
            self._recognised.clear()
        return forgotten

    def _read(self, document: msgspec.Raw | bytes, priorities: PriorityValues) -> ParsedPod:
        pod = _DECODER.decode(document)
        spec = pod.spec
        priority, preempts = spec.priority, spec.preemption_policy != PREEMPT_NEVER
        if spec.from_class:
            value, class_preempts = priorities.of(spec.priority_class_name)
            priority = value if priority is None else priority
            preempts = preempts if spec.preemption_policy else class_preempts
        priority = priority or 0
        labels = pod.metadata.labels
        traits = traits_of(labels, pod.metadata.annotations)
        preempts = has_others_end(traits.classes[2], self._default_preemption, preempts)
        kinds = {owner.kind for owner in pod.metadata.owner_references}
        daemon = "DaemonSet" in kinds
        custom = (
            scaling_factors(self._args.estimated_scaling_factors, pod.metadata.annotations, True)
            if self._args.allow_customize_estimation
            else None
        )
        namespace = pod.metadata.namespace
        affinity, spread = bytes(spec.affinity), bytes(spec.topology_spread_constraints)
        defaulted = bool(self._spread.constraints) and not spread and controlled(kinds)
        # Affinity terms refer to the pod's own namespace, and may refer to its own labels.
        wants = (namespace, tuple(sorted(labels.items()))) if spread or defaulted or _POD_AFFINITY.search(affinity) else None
        if wants is not None and (wants, affinity, spread, defaulted) not in self._wants:
            self._number(document, (wants, affinity, spread, defaulted))
        recognition = (
            wants,
            (namespace, pod.metadata.name, bytes(spec.volumes)) if _has_volumes(spec.volumes) else None,
            spread,
            defaulted,
            self.selectors.selecting(namespace, labels),
            tuple((bytes(c.resources), bytes(c.ports), c.image) for c in spec.containers),
            tuple((bytes(c.resources), bytes(c.ports), c.image, c.restart_policy) for c in spec.init_containers),
            priority,
            preempts,
            traits.classes,
            daemon,
            bytes(spec.node_selector),
            affinity,
            bytes(spec.tolerations),
            bytes(spec.overhead),
            spec.host_network,
            pod.status.qos_class,
            tuple(sorted(custom.items())) if custom is not None else None,
            self._annotations_read(pod.metadata.annotations),
        )
        found = self._recognised.get(recognition)
        if found is None:
            try:
                found = self._shape(document, priority, preempts, daemon)
            except (msgspec.DecodeError, QuantityError, ShapeError) as error:
                found = f"the pod cannot be read: {error}"
            if len(self._recognised) >= RECOGNITIONS_CACHED:
                self._recognised.clear()
            self._recognised[recognition] = found
        shape, wrong = (None, found) if isinstance(found, str) else (found, "")
        return ParsedPod(
            namespace,
            pod.metadata.name,
            pod.metadata.uid,
            pod.metadata.creation_timestamp or "",
            pod.metadata.deletion_timestamp is not None,
            pod.metadata.grace_seconds(spec.termination_grace_period_seconds),
            traits,
            traits.classes[3] or spec.scheduler_name,
            spec.node_name,
            priority,
            spec.from_class,
            tuple([gate.name for gate in spec.scheduling_gates]),
            shape,
            wrong,
            pod.status.phase in ENDED_PHASES,
            spec.ends,
            pod.status.nominated_node_name,
        )

    def _number(self, document: msgspec.Raw | bytes, wants: tuple[object, ...]) -> None:
        """Assign numbers to the selectors of a pod before any pod is matched against them."""
        with contextlib.suppress(msgspec.DecodeError):  # `_shape` reports the error
            self._relations(decode_pod(document))
        if len(self._wants) >= RECOGNITIONS_CACHED:
            self._wants.clear()
        self._wants.add(wants)

    def _relations(self, pod: Pod) -> Relations:
        """The pod's affinity and spread, with the constraints that it gets without stating any."""
        if pod.spec.topology_spread_constraints or not self._spread.constraints:
            return self.selectors.relations(pod)
        kinds = [owner.kind for owner in pod.metadata.owner_references]
        defaults = constraints_of(self._spread, pod.metadata.labels) if controlled(kinds) else ()
        return self.selectors.relations(pod, defaults, lenient=self._spread.defaulting_type is Defaulting.SYSTEM)

    def _shape(self, document: msgspec.Raw | bytes, priority: int, preempts: bool, daemon: bool) -> Shape:
        pod = decode_pod(document)
        pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority))
        requests = pod_requests(pod)
        requests.pop(RESOURCE_PODS, None)  # a pod counts as one, even if it requests `pods`
        negative = sorted(name for name, amount in requests.items() if amount < 0)
        if negative:
            raise ShapeError(f"the request of {negative[0]} is negative")
        nonzero_cpu, nonzero_memory = nonzero_requests(pod)
        tier = priority_default(pod)
        factors = scaling_factors(
            self._args.estimated_scaling_factors, pod.metadata.annotations, self._args.allow_customize_estimation
        )
        estimate = estimate_pod(requests, pod_limits(pod), tier, factors)
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
        key = ShapeKey(
            requests=tuple(sorted(requests.items())),
            nonzero_cpu=nonzero_cpu,
            nonzero_memory=nonzero_memory,
            priority=priority,
            preempts=preempts,
            tier=tier,
            daemon=daemon,
            estimate=tuple(estimate.get(resource, 0) for resource in self._resources),
            node_selector=tuple(sorted(pod.spec.node_selector.items())),
            affinity=msgspec.json.encode(affinity) if affinity else b"",
            tolerations=effective_tolerations(pod),
            host_ports=host_ports(pod),
            images=images(pod),
            asks=tuple((reader.name, asked) for reader in self._readers if (asked := reader.asks(pod)) is not None),
            relations=self._relations(pod),
            selected_by=self.selectors.selecting(pod.metadata.namespace, pod.metadata.labels),
        )
        return self._shape_of(key)

    def _shape_of(self, key: ShapeKey) -> Shape:
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = Shape(key)
        return shape

    def without_load(self, shape: Shape) -> Shape:
        """Return the shape with the same requests and no estimated load."""
        return self._shape_of(msgspec.structs.replace(shape.key, estimate=(0,) * len(shape.key.estimate)))
