"""Messages of LOG and USAGE: an event of each type on its subject, and documents of each kind.

In: a seed, a heat. Out: subject, bytes and whether it is a tombstone. Subjects are those of the event reference (`CHANNELS`),
the documents' types those of the registry of kinds, together with what single services read of a document beyond that.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, get_type_hints

import msgspec

from cotenant.api.objects.pod import Pod
from cotenant.events.envelope import payload_types
from cotenant.kinds.registry import REGISTRY
from cotenant.model.subjects import encode_token, object_subject
from cotenant.reference import CHANNELS
from cotenant_batch_resource_calculator.topology import _Topology
from cotenant_scheduler.state.reading.pod_documents import PodDocument
from tests.fuzz.extremes import TIMES, json_bytes, near
from tests.fuzz.making import JOBS, NAMESPACES, NODES, PODS, QUOTAS, Maker, hold

TTL_SECONDS = 3600
OBJECT, DELETED = "cotenant.object.v1", "cotenant.object.deleted.v1"

hold("Placement", "pod", Pod)


class Message(msgspec.Struct, frozen=True):
    """A message as it is stored."""

    subject: str
    data: bytes
    tombstone: bool = False


class Document(msgspec.Struct, frozen=True):
    """A kind of document, and the types that read it."""

    group: str
    plural: str
    api_version: str
    kind: str
    namespaced: bool
    types: tuple[Any, ...]


def _schema(decode: Any) -> Any:
    """The type that a kind's decoder decodes."""
    decoder = getattr(decode, "__self__", None)
    return decoder.type if isinstance(decoder, msgspec.json.Decoder) else get_type_hints(decode)["return"]


DOCUMENTS: tuple[Document, ...] = (
    *(
        Document(
            each.kind.group, each.kind.plural, each.kind.api_version, each.kind.kind, each.kind.namespaced,
            (_schema(each.decode), PodDocument) if each.kind.plural == "pods" else (_schema(each.decode),),
        )
        for each in REGISTRY
    ),
    Document("topology.node.k8s.io", "noderesourcetopologies", "topology.node.k8s.io/v1alpha1", "NodeResourceTopology", False,
    (_Topology,)),
)  # fmt: skip
_NAMES: dict[str, Sequence[str]] = {
    "nodes": NODES, "nodemetrics": NODES, "nodeslos": NODES, "noderesourcetopologies": NODES, "devices": NODES,
    "namespaces": NAMESPACES,
    "elasticquotas": QUOTAS, "podmigrationjobs": JOBS, "priorityclasses": ("koord-batch", "koord-prod", "mine"),
    "configmaps": ("slo-controller-config",), "runtimeclasses": ("runc", "kata"),
}  # fmt: skip
STREAMS = {wire: stream for stream, _, wire, _ in CHANNELS}
SUBJECTS = {wire: subject for _, subject, wire, _ in CHANNELS}
_BY_FIRST_TOKEN = {subject.split(".")[0]: stream for stream, subject, _, _ in CHANNELS}


def stream_of(subject: str) -> str:
    """The stream that a subject is stored on."""
    return _BY_FIRST_TOKEN[subject.split(".")[0]]



def document(random: Random, of: Document, heat: float, fullness: float) -> tuple[str, str, dict[str, Any]]:
    """Return namespace, name and JSON of a document of a kind."""
    namespace = random.choice(NAMESPACES) if of.namespaced else ""
    if of.plural == "configmaps":
        namespace = "koordinator-system"
    name = random.choice(_NAMES.get(of.plural, PODS))
    maker = Maker(random, heat, fullness)
    made = maker.make(random.choice(of.types))
    if not isinstance(made, dict):
        return namespace, name, made
    metadata = made.setdefault("metadata", {})
    if isinstance(metadata, dict) and not maker.hot():
        metadata |= {
            "name": name,
            "uid": f"uid-{name}" if random.random() < 0.9 else "uid-2",
            "creationTimestamp": near(random),
        }
        if of.namespaced:
            metadata["namespace"] = namespace
    if not maker.hot():
        made |= {"apiVersion": of.api_version, "kind": of.kind}
    if of.plural == "pods":
        _complete(random, made)
    return namespace, name, made


def _complete(random: Random, pod: dict[str, Any]) -> None:
    """Most pods have a container that asks for something."""
    spec = pod.get("spec")
    if random.random() < 0.3 or (spec is not None and not isinstance(spec, dict)):
        return
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    pod["spec"] = {
        "containers": [{"name": "main", "image": "app:1", "command": ["run"], "resources": resources}],
        **(spec or {}),
    }


def event(random: Random, wire: str, heat: float) -> Message:
    """Return an event of a type, on its subject."""
    fullness = random.choice((0.1, 0.4, 0.8))
    if wire in (OBJECT, DELETED):
        of = random.choice(DOCUMENTS)
        namespace, name, made = document(random, of, heat, fullness)
        subject = object_subject(of.group, of.plural, namespace, name)
        if wire == DELETED:
            return envelope(
                random, subject, wire, {"uid": f"uid-{name}"} if random.random() < 0.5 else {}, heat, tombstone=True
            )
        return envelope(random, subject, wire, {"object": made, "admission": []}, heat)
    pod = random.choice(PODS)
    names = {"node": random.choice(NODES), "namespace": random.choice(NAMESPACES), "name": pod, "pod": pod, "uid": f"uid-{pod}"}
    names |= {"job": random.choice(JOBS), "quota": random.choice(QUOTAS), "tree": random.choice(("", "tree"))}
    if random.random() < 0.1:
        names["uid"] = "uid-2"
    data = Maker(random, heat, fullness, names).make(payload_types()[wire])
    tokens = {**names, "tree": names["tree"] or "_", "topic": "suppress", "service": "toy", "partition": "0", "replica": "0"}
    subject = ".".join(
        encode_token(tokens.get(part[1:-1], "x")) if part.startswith("<") else part for part in SUBJECTS[wire].split(".")
    )
    gone = isinstance(data, dict) and data.get("phase") == "gone"
    return envelope(random, subject, wire, data, heat, tombstone=gone or random.random() < 0.03)


def envelope(random: Random, subject: str, wire: str, data: Any, heat: float, *, tombstone: bool = False) -> Message:
    """Return the message around a payload."""
    made = {
        "specversion": "1.0", "id": f"fuzz/{random.random()}", "source": "/fuzz", "type": wire,
        "time": random.choice(TIMES) if random.random() < heat else near(random), "causes": ["LOG:1"], "data": data,
    }  # fmt: skip
    return Message(subject, json_bytes(made), tombstone)
