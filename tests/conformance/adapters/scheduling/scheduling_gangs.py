"""Scheduling vectors of gangs: through the domain's rules and the gang cache that the scheduler runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from cotenant.api.objects.pod_group import decode_pod_group
from cotenant.api.times import go_duration, parse_rfc3339
from cotenant.domain.gangs import (
    GangError,
    MatchPolicy,
    PodGroupPhase,
    PodGroupState,
    gang_id,
    gang_name,
    group_id,
    min_member,
    occupied_by,
    parse_groups,
    synchronised,
    wait_of,
)
from cotenant.events.node.runs import RunPhase
from cotenant_scheduler.cycle.pod_groups import members_of
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.gangs import CoschedulingArgs, GangCache, GangPod
from tests.conformance.mended import mended

Json = dict[str, Any]

_RUNS = {"Running": RunPhase.RUNNING, "Succeeded": RunPhase.SUCCEEDED, "Failed": RunPhase.FAILED}
_ONE_ENTRY = "20: members of a group are one entry of the queue, in a stated order: none of them stands for the others"


def gang(given: Json) -> object:
    operations: dict[str, Callable[[], Json]] = {
        "groupId": lambda: {"groupId": group_id(given["gangs"])},
        "gangName": lambda: {"gangName": gang_name(_labels(given["pod"]), _annotations(given["pod"]))},
        "minMember": lambda: _or_error("minMember", lambda: min_member(_labels(given["pod"]), _annotations(given["pod"]))),
        "waitTime": lambda: {"waitTime": _wait(given)},
        "parseGroups": lambda: _or_error("groups", lambda: list(parse_groups(given["value"]))),
        "initGang": lambda: {"gangs": _gangs(given)},
        "permit": lambda: _permit(given),
        "postFilter": lambda: _post_filter(given),
        "podGroupSync": lambda: _synchronised(given),
        "occupiedBy": lambda: {"occupiedBy": _occupied(given["pod"])},
    }
    if given["op"] == "preEnqueue":
        return _pre_enqueue(given)
    if given["op"] not in operations:
        raise NotImplementedError(f"{given['op']} is of v1.4's cycle by pods")
    return operations[given["op"]]()


def _or_error(name: str, read: Any) -> Json:
    try:
        return {name: read()}
    except GangError:
        return {"error": True}


def _labels(pod: Json) -> dict[str, str]:
    return pod.get("metadata", {}).get("labels") or {}


def _annotations(pod: Json) -> dict[str, str]:
    return pod.get("metadata", {}).get("annotations") or {}


def _seconds(text: str) -> int:
    """Whole seconds of Go's `XhYmZs`."""
    found = 0
    number = ""
    for char in text:
        if char.isdigit():
            number += char
        else:
            found += int(number) * {"h": 3600, "m": 60, "s": 1}[char]
            number = ""
    return found


def _wait(given: Json) -> str:
    group = decode_pod_group(msgspec.json.encode(given["podGroup"]))
    default = timedelta(seconds=_seconds(given["defaultTimeout"]))
    return go_duration(int(wait_of(group.spec.schedule_timeout_seconds, default).total_seconds()))


def _key(pod: Json) -> PodKey:
    metadata = pod.get("metadata", {})
    return metadata.get("namespace", ""), metadata.get("name", "")


def _pod(pod: Json, bound: bool | None = None) -> GangPod:
    on_node = bool(pod.get("spec", {}).get("nodeName"))
    return GangPod(
        created=pod.get("metadata", {}).get("creationTimestamp", ""),
        labels=_labels(pod),
        annotations=_annotations(pod),
        bound=on_node if bound is None else bound,
        run=_RUNS.get(pod.get("status", {}).get("phase", "")),
    )


def _cache(given: Json, *pods: tuple[Json, bool | None]) -> GangCache:
    args = given.get("args") or {}
    default = CoschedulingArgs(
        default_timeout=_seconds(args.get("defaultTimeout", "600s")),
        default_match_policy=MatchPolicy(args.get("defaultMatchPolicy", "once-satisfied")),
    )
    cache = GangCache(default)
    for group in given.get("podGroups") or ():
        decoded = decode_pod_group(msgspec.json.encode(group))
        cache.put_pod_group(gang_id(decoded.metadata.namespace, decoded.metadata.name), decoded)
    for pod, bound in pods:
        cache.put(_key(pod), _pod(pod, bound))
    _settle(cache)
    if given.get("onceSatisfied"):
        for identity, found in sorted(cache.gangs.items()):
            if found.spec is not None and found.spec.match_policy is MatchPolicy.ONCE_SATISFIED:
                namespace, _, name = identity.partition("/")
                labels = {"pod-group.scheduling.sigs.k8s.io": name}
                cache.put((namespace, "~bound"), GangPod("~", labels, {}, bound=True))
        _settle(cache)
    return cache


def _settle(cache: GangCache) -> None:
    list(cache.settle())


def _gangs(given: Json) -> Json:
    cache = _cache(given, *((pod, None) for pod in given["pods"]))
    shown: Json = {}
    for identity, found in cache.gangs.items():
        members = sorted(found.members)
        shown[identity] = {
            "initialized": found.spec is not None,
            "children": ["/".join(key) for key in members],
            "pending": ["/".join(key) for key in members if not found.members[key].bound],
            "bound": ["/".join(key) for key in members if found.members[key].bound],
        }
        if (spec := found.spec) is not None:
            shown[identity] |= {
                "minMember": spec.min_member,
                "totalMember": spec.total_member,
                "mode": spec.mode.value,
                "matchPolicy": spec.match_policy.value,
                "waitTime": go_duration(int(spec.wait.total_seconds())),
                "groups": list(spec.groups),
                "groupId": spec.group_id,
                "source": spec.source.value,
                "onceSatisfied": cache.satisfied(identity),
            }
    return shown


def _permit(given: Json) -> Json:
    pod, permitted = given["pod"], given.get("permittedPods") or []
    bound = given.get("boundPods") or []
    cache = _cache(given, *((one, None) for one in permitted), *((one, True) for one in bound), (pod, None))
    identity = cache.of_pod.get(_key(pod))
    if identity is None:
        return {"result": "NotGang", "waitTime": "0s"}
    if cache.permits(identity, [_key(one) for one in (*permitted, pod)]):
        return {"result": "Success", "waitTime": "0s"}
    spec = cache.gangs[identity].spec
    return {"result": "Wait", "waitTime": go_duration(int(spec.wait.total_seconds())) if spec is not None else "0s"}


def _pre_enqueue(given: Json) -> object:
    pods, pod = given.get("pods") or [], given["pod"]
    cache = _cache(given, *((one, None) for one in pods), (pod, None))
    identity = cache.of_pod.get(_key(pod))
    message = cache.refusal(identity, _key(pod)) if identity is not None else ""
    result = {"admitted": not message, "message": message}
    if identity is None or message or cache.together(_key(pod)) is None:
        return result
    earlier = _cache(given, *((one, None) for one in pods))
    if any(earlier.of_pod.get(_key(one)) == identity and not earlier.refusal(identity, _key(one)) for one in pods):
        return mended(result, "$.admitted", "$.message", trap=_ONE_ENTRY)
    return result


def _post_filter(given: Json) -> Json:
    pod, permitted = given["pod"], given.get("permittedPods") or []
    bound = given.get("boundPods") or []
    cache = _cache(given, *((one, None) for one in permitted), (pod, None), *((one, True) for one in bound))
    identity = cache.of_pod.get(_key(pod))
    if identity is None or not cache.rejects(identity):
        return {"messageEmpty": True, "rejectedPods": []}
    group = cache.together(_key(pod))
    rejected = [_key(one) for one in permitted if cache.together(_key(one)) is group]
    return {"messageEmpty": False, "rejectedPods": ["/".join(key) for key in sorted(rejected)]}


def _synchronised(given: Json) -> Json:
    group = given["podGroup"]
    metadata, status = group["metadata"], group.get("status") or {}
    decoded = decode_pod_group(msgspec.json.encode(group))
    cache = _cache({"podGroups": [group]}, *((pod, None) for pod in given["pods"]))
    last = PodGroupState(
        PodGroupPhase(status.get("phase", "")),
        status.get("scheduled", 0),
        status.get("running", 0),
        status.get("succeeded", 0),
        status.get("failed", 0),
        parse_rfc3339(status.get("scheduleStartTime")),
    )
    now = datetime.fromisoformat(given["now"]).astimezone(UTC)
    members = members_of(cache.gangs[gang_id(metadata["namespace"], metadata["name"])])
    created = parse_rfc3339(metadata.get("creationTimestamp"))
    found = synchronised(last, decoded.spec.min_member, members, created, now)
    return {"phase": found.phase.value, "scheduled": found.scheduled}


def _occupied(pod: Json) -> str:
    metadata = pod["metadata"]
    return occupied_by(metadata.get("namespace", ""), [owner["name"] for owner in metadata.get("ownerReferences") or []])
