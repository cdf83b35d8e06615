"""Any value anywhere in a document: each request that writes is answered, with what is wrong or with what would be stored."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest

from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus
from cotenant.model.subjects import executor_subject, resources_subject
from cotenant_gateway.planning.creations import plan_creation
from cotenant_gateway.planning.documents import Planned, TooNew
from cotenant_gateway.planning.updates import PATCH_TYPES, plan_patch, plan_replacement
from cotenant_gateway.statuses import ApiError
from tests.unit.gateway.builders_gateway import World, as_json, kind, manifest

VALUES: list[Any] = [None, "x", "", -1, 1.5, 10**30, True, [], {}, [None], [{}], {"x": None}, {"": ""}, "\0"]

_EXPRESSION = {"key": "zone", "operator": "In", "values": ["a"]}
_SELECTOR = {"matchLabels": {"a": "b"}}
_POD = manifest(
    volumes=[{"name": "v", "emptyDir": {}}],
    tolerations=[{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
    nodeSelector={"a": "b"},
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [_EXPRESSION]}]}
        },
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": _SELECTOR, "topologyKey": "zone"}]
        },
    },
    topologySpreadConstraints=[
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": _SELECTOR}
    ],
)
_METADATA = {"name": "x", "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["example.com/x"]}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "pods": {**_POD, "metadata": _METADATA},
    "nodes": {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _METADATA,
        "spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}], "unschedulable": True},
        "status": {"allocatable": {"cpu": "8", "pods": 5}, "images": [{"names": ["a"], "sizeBytes": 5}]},
    },
    "elasticquotas": {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": _METADATA,
        "spec": {"min": {"cpu": "1"}, "max": {"cpu": "2"}},
        "status": {"used": {"cpu": "1"}},
    },
    "clustercolocationprofiles": {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": _METADATA,
        "spec": {
            "selector": _SELECTOR,
            "labels": {"a": "b"},
            "probability": "50%",
            "patch": {"spec": {"terminationGracePeriodSeconds": 3}},
        },
    },
}


def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from paths(each, (*path, key))


def with_value(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(document)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return changed


def patch_of(patch_type: str, path: tuple[str | int, ...], value: Any) -> bytes:
    if patch_type == "application/json-patch+json":
        pointer = "".join(f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in path)
        return as_json([{"op": "replace", "path": pointer, "value": value}])
    for key in reversed([key for key in path if isinstance(key, str)]):
        value = {key: value}
    return as_json(value)


def refusal(attempt: Callable[[], Planned]) -> ApiError | None:
    """What a request is refused with; None where it is planned, or waits for a version that is not read yet."""
    try:
        attempt()
    except ApiError as error:
        return error
    except TooNew as newer:
        return newer.answer
    return None


@pytest.mark.parametrize("plural", DOCUMENTS)
def test_no_value_anywhere_in_a_document_is_more_than_a_refusal(plural: str) -> None:
    world, document, found = World(), DOCUMENTS[plural], kind(plural)
    namespace = "default" if found.namespaced else ""
    world.create(plural, document)
    if plural == "pods":
        world.place("x")
        world.run("x")
    if plural == "nodes":
        world.put(executor_subject("x"), ExecutorStatus(node="x", allocatable={"cpu": 8000}, labels={"c": "d"}))
        world.put(resources_subject("x"), NodeResources(node="x", batch_cpu_milli=1000))

    def attempts(path: tuple[str | int, ...], value: Any) -> Iterator[Callable[[], Planned]]:
        body = as_json(with_value(document, path, value))
        yield partial(plan_creation, world.core, found, namespace, body, world.now, "uid", lambda: "abcde")
        yield partial(plan_replacement, world.core, found, namespace, "x", body)
        for patch_type, subresource in product(PATCH_TYPES, ("", "status", "resize") if plural == "pods" else ("", "status")):
            patch = patch_of(patch_type, path, value)
            yield partial(plan_patch, world.core, found, namespace, "x", patch_type, patch, subresource=subresource)

    refused = 0
    for path, value in product(paths(document), VALUES):
        for attempt in attempts(path, value):
            error = refusal(attempt)
            if error is not None:
                refused += 1
                assert 400 <= error.code < 500 or error.code == 504, (path, value, str(error))
                assert json.loads(error.body)["message"]
    assert refused > 100
