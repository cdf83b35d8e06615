"""node-executor vectors of the CPU strategies: burst, eviction, CPU sets, normalisation, core scheduling."""

from __future__ import annotations

import errno
import json
from typing import Any

import msgspec

from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.domain.qos import QoSClass, qos_raw
from cotenant.model.names import BATCH_CPU, CPU, LABEL_QOS_CLASS
from cotenant.model.quantities import parse_milli, parse_value
from cotenant_node_executor.sampling.usage import best_effort_real_limit_milli
from cotenant_node_executor.strategies.allocation import resource_status
from cotenant_node_executor.strategies.cpu import cpuset_rule, normalization
from cotenant_node_executor.strategies.cpu.burst import config as burst
from cotenant_node_executor.strategies.cpu.burst import kernel_burst, quota_burst, share_pool, token_bucket
from cotenant_node_executor.strategies.cpu.core_sched import rule as core_sched_rules
from cotenant_node_executor.strategies.cpu.evict import satisfaction, victims
from cotenant_node_executor.targets.cgroup import knobs
from cotenant_node_executor.targets.cpulist import smallest_cpu_list
from cotenant_node_executor.targets.other import cookies

SECOND_NS = 1_000_000_000


def _pods(given: dict[str, Any]) -> list[Pod]:
    return [decode_pod(json.dumps(pod).encode()) for pod in given.get("pods") or []]


def _requests(pod: Pod, name: str) -> int:
    stated = (container.resources.requests.get(name, 0) for container in pod.spec.containers)
    return sum(parse_milli(each) if name == CPU else parse_value(each) for each in stated)


def _milli(cores: str | None) -> float | None:
    return None if cores is None else float(cores) * 1000


def _limit(container: dict[str, Any]) -> int | None:
    limit = ((container.get("resources") or {}).get("limits") or {}).get("cpu")
    return None if limit is None else parse_milli(limit)


def _config(given: dict[str, Any] | None) -> burst.BurstConfig:
    return msgspec.convert(given or {}, burst.BurstConfig)


def cpu_burst(given: dict[str, Any], *, name: str) -> object:
    match given["op"]:
        case "node_state":
            return {"state": _node_state(given).value}
        case "merge_config":
            node = None if given["nodeConfig"] is None else _config(given["nodeConfig"])
            annotation = given.get("podAnnotation")
            merged = burst.pod_config(node, {} if annotation is None else {burst.ANNOTATION_CPU_BURST: annotation})
            return {"config": None if merged is None else msgspec.to_builtins(merged)}
        case "cfs_burst":
            pod, each = kernel_burst.pod_bursts_us(_config(given["config"]), [_limit(entry) for entry in given["containers"]])
            names = [entry["name"] for entry in given["containers"]]
            return {"containers": dict(zip(names, each, strict=True)), "pod": pod}
        case "quota_step":
            return _quota_step(given)
        case "limiter_capacity":
            return {"capacity": token_bucket.capacity_of(given["periodSeconds"], given["maxScalePercent"])}
    capacity = token_bucket.capacity_of(given["periodSeconds"], given["maxScalePercent"])
    bucket = token_bucket.new_bucket(capacity, given["initialTokenRatio"], 0)
    moved = token_bucket.after(bucket, given["usagePercent"], int(given["secondsSinceUpdate"] * SECOND_NS))
    return {"allowed": token_bucket.allowed(moved), "token": moved.tokens}


def _node_state(given: dict[str, Any]) -> share_pool.PoolState:
    pods = _pods(given)
    processors, node = given["processors"], _milli(given["nodeCPUUsed"])
    total = None
    if processors is not None:
        total = share_pool.pool_total_milli(processors, [(qos_raw(pod).value, _requests(pod, CPU)) for pod in pods])
    used = None
    if node is not None:
        samples = {uid: float(cores) * 1000 for uid, cores in (given["podCPUUsed"] or {}).items()}
        used = share_pool.pool_used_milli(node, [(pod.metadata.uid, qos_raw(pod).value) for pod in pods], samples)
    return share_pool.pool_state(given["sharePoolThresholdPercent"], total, used)


def _quota_step(given: dict[str, Any]) -> object:
    config, state = _config(given["config"]), share_pool.PoolState(given["nodeState"])
    quotas: dict[str, int] = {}
    changes: list[int] = []
    for container in given["containers"]:
        limit, current = _limit(container), container.get("currentQuota")
        quotas[container["name"]] = current
        if not limit or limit <= 0 or current is None:
            continue
        usage = token_bucket.usage_percent(_milli(container.get("cpuUsed")), limit)
        admitted, _ = token_bucket.admit(config, None, usage, 0, 0.25)
        chosen = quota_burst.operation(config, state, container.get("throttledRatio"), admitted)
        quota = quota_burst.next_quota_us(config, chosen, limit * 100, current)
        quotas[container["name"]] = quota
        changes.append(quota - current)
    return {"podQuota": quota_burst.next_pod_quota_us(given["podQuota"], changes), "containerQuota": quotas}


def cpu_evict(given: dict[str, Any], *, name: str) -> object:
    match given["op"]:
        case "real_limit":
            tier, *containers = given["beCPUSets"]
            cpus = len(smallest_cpu_list(tier, containers))
            return {"realLimitMilliCPU": best_effort_real_limit_milli(cpus, given["quota"], given["period"])}
        case "config_valid":
            return {"valid": _satisfaction(given["config"]).valid}
        case "pick":
            return {"evicted": _picked(given)}
    allocatable = given.get("nodeAllocatableBatchCPU")
    figures = [_figures(given[key]) for key in ("average", "current")]
    assert figures[0] is not None
    return {
        "releaseMilliCPU": satisfaction.release_milli(
            _satisfaction(given["config"]),
            given["collectIntervalSeconds"],
            None if allocatable is None else parse_value(allocatable),
            figures[0],
            figures[1],
        )
    }


def _satisfaction(config: dict[str, Any]) -> satisfaction.SatisfactionConfig:
    return satisfaction.SatisfactionConfig(
        upper_percent=config.get("cpuEvictBESatisfactionUpperPercent"),
        lower_percent=config.get("cpuEvictBESatisfactionLowerPercent"),
        usage_threshold_percent=config.get("cpuEvictBEUsageThresholdPercent"),
        window_seconds=config.get("cpuEvictTimeWindowSeconds"),
        policy=config.get("cpuEvictPolicy") or "",
    )


def _figures(given: dict[str, Any] | None) -> satisfaction.BestEffort | None:
    if given is None:
        return None
    return satisfaction.BestEffort(given["used"], given["request"], given["realLimit"], given["count"])


def _picked(given: dict[str, Any]) -> list[str]:
    used = given.get("podCPUUsed") or {}
    names = {}
    candidates = []
    for pod in _pods(given):
        if qos_raw(pod) is not QoSClass.BE:
            continue
        uid = pod.metadata.uid
        names[uid] = pod.metadata.name
        milli = int(float(used.get(uid, 0)) * 1000)
        candidates.append(victims.CpuEvictionCandidate(uid, pod.spec.priority, _requests(pod, BATCH_CPU), milli))
    chosen = victims.taken(victims.by_satisfaction(candidates), given["releaseMilliCPU"], lambda pod: pod.request_milli)
    return [names[pod.uid] for pod in chosen]


def _pool(given: dict[str, Any]) -> cpuset_rule.CpuPools:
    def pools(key: str) -> tuple[cpuset_rule.SharePool, ...]:
        return msgspec.convert(given.get(key) or [], tuple[cpuset_rule.SharePool, ...])

    return cpuset_rule.CpuPools(
        share=pools("sharePools"),
        batch=pools("beSharePools"),
        system=given.get("systemQOSCPUSet") or "",
        kubelet_policy=given.get("kubeletCPUManagerPolicy") or "",
        manages_batch=bool(given.get("beCPUManager")),
    )


def container_cpuset(given: dict[str, Any], *, name: str) -> object:
    try:
        if given["op"] == "host_app":
            return {"cpuset": cpuset_rule.host_application_cpuset(_pool(given), given["qosClass"]), "error": False}
        labels = given["podLabels"] or {}
        status = resource_status(given["podAnnotations"] or {})
    except ValueError:
        return {"cpuset": None, "error": True}
    return {
        "cpuset": cpuset_rule.container_cpuset(
            _pool(given), _qos(labels), status.cpuset, status.cpu_nodes, given["cgroupParent"]
        ),
        "error": False,
    }


def _qos(labels: dict[str, str]) -> QoSClass:
    text = labels.get(LABEL_QOS_CLASS, "")
    return QoSClass(text) if text in set(QoSClass) else QoSClass.NONE


def cpu_normalization_quota(given: dict[str, Any], *, name: str) -> object:
    match given["op"]:
        case "parse_ratio":
            text = (given["nodeAnnotations"] or {}).get("node.koordinator.sh/cpu-normalization-ratio")
            try:
                return {"ratio": normalization.stated_ratio(text), "error": False}
            except ValueError:
                return {"ratio": normalization.OFF, "error": True}
        case "is_cpu_share":
            return {"cpuShare": normalization.is_shared(given["podLabels"], given["podAnnotations"] or {})}
    if not normalization.is_shared(given["podLabels"], given["podAnnotations"] or {}):
        return {"quota": None}
    return {"quota": normalization.normalized_quota_us(given["quota"], given["ratio"])}


class _Calls:
    """The kernel's calls on a table of cookies."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.cookies = {int(pid): cookie for pid, cookie in given["cookies"].items()}
        self._failing = set(given["failingPIDs"])
        self._next = given.get("nextCookie", 0)

    def _checked(self, pid: int) -> None:
        if pid in self._failing:
            raise ProcessLookupError(errno.ESRCH, "no such process")

    def cookie_of(self, pid: int) -> int:
        self._checked(pid)
        return int(self.cookies.get(pid, 0))

    def new_process_cookie(self, pid: int) -> None:
        self._checked(pid)
        self.cookies[pid] = self._next

    def share_process_cookie(self, source: int, pid: int) -> None:
        self._checked(pid)
        self.cookies[pid] = self.cookies.get(source, 0)


def core_sched(given: dict[str, Any], *, name: str) -> object:
    match given["op"]:
        case "parse_rule":
            return _rule_document(given["resourceQOSStrategy"])
        case "pod_group":
            table = _rule(given["rule"])
            enabled, group = core_sched_rules.pod_group(
                table, given["podLabels"] or {}, given["kubeQOS"] or "", given["podUID"]
            )
            return {"enabled": enabled, "group": group}
        case "supported":
            return {"supported": knobs.core_sched_files(given["sched_core"], given["sched_features"])}
    calls = _Calls(given)
    match given["op"]:
        case "get_cookie":
            cookie, pids = cookies.read_cookie(calls, given["pids"])
            return {"cookie": cookie, "pids": pids}
        case "add_cookie":
            try:
                cookie, pids = cookies.add_cookie(calls, given["pids"])
            except OSError:
                return {"cookie": 0, "pids": [], "error": True}
            return {"cookie": cookie, "pids": pids, "error": False}
        case "assign_cookie":
            assigned, stale, failed = cookies.assign_cookie(calls, given["pids"], given["siblings"], given["target"])
            return {"assigned": assigned, "staleSiblings": stale, "error": failed}
    return {"cleared": cookies.clear_cookie(calls, given["pids"])}


def _rule(given: dict[str, Any]) -> core_sched_rules.CoreSchedRule:
    def classes(table: dict[str, Any]) -> dict[str, core_sched_rules.ClassRule]:
        return {key: core_sched_rules.ClassRule(e["enabled"], e["expeller"], e["cpuIdle"]) for key, e in (table or {}).items()}

    return core_sched_rules.CoreSchedRule(given["enable"], classes(given["podQOS"]), classes(given["kubeQOSPod"]))


def _rule_document(given: dict[str, Any] | None) -> object:
    strategy = None if given is None else msgspec.convert(given, core_sched_rules.QosStrategy)
    found = core_sched_rules.core_sched_rule(strategy)

    def document(classes: Any) -> dict[str, Any]:
        return {key: {"enabled": e.enabled, "expeller": e.expeller, "cpuIdle": e.idle} for key, e in classes.items()}

    return {"enable": found.enable, "podQOS": document(found.pod_qos), "kubeQOSPod": document(found.kube_qos_pod)}
