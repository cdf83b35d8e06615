"""From the vectors of node-executor to the strategies: what comes in is translated, the service's own functions answer."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from cotenant.api.objects.node import decode_node
from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.domain.qos import kube_qos, qos_raw
from cotenant.domain.reservation import parse_reservation
from cotenant.events.node.resources import CpuIdentity, NodeSLORendered
from cotenant.model.names import (
    ANNOTATION_NODE_RESERVATION,
    ANNOTATION_RESOURCE_STATUS,
    BATCH_CPU,
    BATCH_MEMORY,
    LABEL_QOS_CLASS,
)
from cotenant.model.quantities import parse_milli, parse_value
from cotenant_node_executor.core.composer import Composer
from cotenant_node_executor.strategies import pod_view, situation
from cotenant_node_executor.strategies.cpu.identity import group_identity as identity
from cotenant_node_executor.strategies.cpu.identity.strategy import bvt_rule
from cotenant_node_executor.strategies.cpu.identity.strategy import decide as decide_identity
from cotenant_node_executor.strategies.cpu.suppression import cfs_quota as suppress_cfs
from cotenant_node_executor.strategies.cpu.suppression import cpu_set as suppress_cpuset
from cotenant_node_executor.strategies.cpu.suppression import quantity as suppress_quantity
from cotenant_node_executor.strategies.pods import batch_values as batch
from cotenant_node_executor.targets.address import Sysctl
from cotenant_node_executor.targets.cgroup.paths import kube_qos_of_dir
from cotenant_node_executor.targets.cpulist import format_cpu_list, parse_cpu_list
from cotenant_node_executor.targets.interface import CgroupVersion, Knob, KnobSupport, NodeCapabilities
from cotenant_node_executor.targets.other.accessors import SysctlAccessor
from cotenant_node_executor.targets.other.writer import OtherWriter
from tests.unit.node_executor.builders_node_executor import capabilities, slo
from tests.unit.node_executor.builders_node_executor import situation as situation_of_builders


def _pods(given: dict[str, Any]) -> list[Pod]:
    return [decode_pod(json.dumps(pod).encode()) for pod in given.get("pods") or []]


def _split(given: dict[str, Any], reserved: float) -> suppress_quantity.UsageSplit:
    hosts = [
        suppress_quantity.HostApplicationClass(
            name=host["name"], qos=host.get("qos") or "", base=(host.get("cgroupPath") or {}).get("base") or ""
        )
        for host in given.get("hostApplications") or []
    ]
    return suppress_quantity.split_usage(
        float(given["nodeCPUUsed"]) * 1000,
        reserved,
        [suppress_quantity.PodClass(pod.metadata.uid, qos_raw(pod), kube_qos(pod)) for pod in _pods(given)],
        {uid: float(used) * 1000 for uid, used in (given.get("podCPUUsed") or {}).items()},
        hosts,
        {name: float(used) * 1000 for name, used in (given.get("hostApplicationCPUUsed") or {}).items()},
    )


def cpu_suppress_quantity(given: dict[str, Any], *, name: str) -> object:
    if given["op"] == "split":
        split = _split(given, float(given["nodeReservedCPU"]) * 1000)
        return {
            "podNonBE": f"{split.pods_non_be_milli / 1000:g}",
            "hostApplicationNonBE": f"{split.hosts_non_be_milli / 1000:g}",
            "system": f"{split.system_milli / 1000:g}",
        }
    node = decode_node(json.dumps(given["node"]).encode())
    capacity = parse_milli(node.status.capacity.get("cpu", 0))
    allocatable = parse_milli(node.status.allocatable.get("cpu", 0))
    reservation = parse_reservation(node.metadata.annotations)
    reserved = suppress_quantity.reserved_milli(capacity, allocatable, reservation.resources.get("cpu", 0))
    return {
        "suppressMilliCPU": suppress_quantity.suppress_milli(
            capacity,
            given["cpuSuppressThresholdPercent"],
            _split(given, reserved),
            given.get("cpuSuppressMinPercent"),
        )
    }


def _excluded(annotations: dict[str, str]) -> frozenset[int]:
    cpus = set(parse_reservation({ANNOTATION_NODE_RESERVATION: annotations[ANNOTATION_NODE_RESERVATION]}).reserved_cpus
               if ANNOTATION_NODE_RESERVATION in annotations else ())
    text = annotations.get("node.koordinator.sh/system-qos-resource")
    if text:
        system = json.loads(text)
        if system.get("cpusetExclusive", True):
            cpus.update(parse_cpu_list(system.get("cpuset", "")))
    return frozenset(cpus)


def _owners(given: dict[str, Any]) -> dict[int, str]:
    bound = []
    for pod in _pods(given):
        status = json.loads(pod.metadata.annotations.get(ANNOTATION_RESOURCE_STATUS, "{}"))
        bound.append((qos_raw(pod).value, frozenset(parse_cpu_list(status.get("cpuset", "")))))
    return situation.cpu_owners(bound)


def cpu_suppress_cpuset(given: dict[str, Any], *, name: str) -> object:
    op = given["op"]
    if op == "apply":
        return {
            "final": suppress_cpuset.cpuset_targets(
                format_cpu_list(given["newCPUSet"]),
                given.get("recoverCPUSet") or "",
                given["kubeletCPUManagerPolicy"] == "static",
                given["dirsByDepth"],
            )
        }
    processors = msgspec.convert(given["processors"], list[situation.Processor])
    if op == "select":
        return {"selected": suppress_cpuset.select_cpus(given["cpus"], processors)}
    annotations = given.get("nodeResourceTopologyAnnotations") or given.get("annotations") or {}
    if op == "recover":
        return {"cpuset": suppress_cpuset.recover_cpuset(processors, _owners(given), _excluded(annotations))}
    return {
        "cpuset": suppress_cpuset.next_cpuset(
            given["suppressMilliCPU"],
            processors,
            frozenset(parse_cpu_list(given["currentCPUSet"])),
            _owners(given),
            _excluded(annotations),
        )
    }


def cpu_suppress_cfs(given: dict[str, Any], *, name: str) -> object:
    current = given["currentQuota"]
    quota = suppress_cfs.next_quota(given["suppressMilliCPU"], parse_milli(given["nodeCPUCapacity"]), current)
    return {"quota": current if quota is None else quota}


def _amounts(name: str, container: dict[str, Any]) -> pod_view.ContainerAmounts:
    requests, limits = container.get("requests") or {}, container.get("limits") or {}

    def value(mapping: dict[str, Any], key: str) -> int | None:
        return parse_value(mapping[key]) if key in mapping else None

    return pod_view.ContainerAmounts(
        name=name,
        request_cpu_milli=value(requests, BATCH_CPU),
        limit_cpu_milli=value(limits, BATCH_CPU),
        limit_memory_bytes=value(limits, BATCH_MEMORY),
    )


def batch_cgroup(given: dict[str, Any], *, name: str) -> object:
    if given["op"] == "quota_enabled":
        strategy = given["resourceUsedThresholdWithBE"] or {}
        return {
            "cfsQuotaEnabled": batch.quota_enabled(strategy.get("enable"), strategy.get("cpuSuppressPolicy") or "")
        }
    containers = (given["extendedResourceSpec"] or {}).get("containers") or {}
    amounts = [_amounts(key, containers[key]) for key in sorted(containers)]
    if given["op"] == "container":
        amounts = [entry for entry in amounts if entry.name == given["containerName"]]
    values = batch.batch_values(
        (given["podLabels"] or {}).get(LABEL_QOS_CLASS, ""),
        amounts,
        use_quota=given["cfsQuotaEnabled"],
        cpu_ratio=given["cpuNormalizationRatio"],
    )
    if values is None:
        return {"resources": None}
    return {
        "resources": {
            "cpuShares": values.cpu_shares,
            "cfsQuota": values.cfs_quota_us,
            "memoryLimit": values.memory_limit_bytes,
        }
    }


def _rule(given: dict[str, Any] | None) -> identity.IdentityRule | None:
    if given is None:
        return None
    return identity.IdentityRule(
        enable=given["enable"],
        pod_qos=given["podQOS"],
        kube_qos_dir=given["kubeQOSDir"],
        kube_qos_pod=given["kubeQOSPod"],
    )


def _class(strategy: dict[str, Any], key: str) -> identity.ClassIdentity:
    qos = (strategy.get(key) or {}).get("cpuQOS") or {}
    return identity.ClassIdentity(bool(qos.get("enable")), qos.get("groupIdentity") or 0)


def _switched(given: dict[str, Any]) -> dict[str, int | None]:
    """The kernel's two switches, in an imitation of /proc/sys, after a cycle with the rule on."""
    names = ("sched_group_identity_enabled", "sched_core")
    seen = situation_of_builders(
        node_slo=slo(be_identity=CpuIdentity(enable=True, group_identity=-1)),
        kernel=capabilities(also=[Knob.CPU_BVT]),
        sysctl=given[names[0]],
    )
    composer = Composer()
    composer.put("node:group-identity", decide_identity(seen, None).values)
    with TemporaryDirectory() as folder:
        kernel = Path(folder, "kernel")
        kernel.mkdir()
        for name in names:
            if given[name] is not None:
                (kernel / name).write_text(f"{given[name]}\n")
        report = OtherWriter({Sysctl: SysctlAccessor(Path(folder))}).apply(composer.composed().others)
        assert report.refused == ()
        return {name: int((kernel / name).read_text()) if (kernel / name).exists() else None for name in names}


def group_identity(given: dict[str, Any], *, name: str) -> object:
    op = given["op"]
    if op == "parse_rule":
        strategy = given["resourceQOSStrategy"] or {}
        rule = identity.identity_rule(
            (strategy.get("policies") or {}).get("cpuPolicy") or "",
            _class(strategy, "lsrClass"),
            _class(strategy, "lsClass"),
            _class(strategy, "beClass"),
        )
        return {
            "enable": rule.enable,
            "podQOS": dict(rule.pod_qos),
            "kubeQOSDir": dict(rule.kube_qos_dir),
            "kubeQOSPod": dict(rule.kube_qos_pod),
        }
    if op == "pod_value":
        table = identity.IdentityRule(True, given["podQOS"] or {}, {}, given["kubeQOSPod"] or {})
        return {"bvt": identity.pod_identity(table, given["qosClass"], given["kubeQOS"])}
    if op == "supported":
        assert given["sysctlGroupIdentity"] is None, "a sysctl without the file: the executor has nothing to write"
        knobs = {Knob.CPU_BVT.value: KnobSupport(given["kubepodsHasBvtFile"])}
        capabilities = NodeCapabilities(CgroupVersion(given["cgroupVersion"]), (), sandbox=False, root="", knobs=knobs)
        return {"supported": bvt_rule(NodeSLORendered(node="n"), capabilities) is not None}
    if op == "init_sysctl":
        return _switched(given)
    known = _rule(given["rule"])
    if op == "host_app_hook":
        return {"bvt": None if known is None else identity.host_identity(known, given["qosClass"])}
    if known is None or not identity.identity_active(
        known, given["systemSupported"], given["sysctlGroupIdentity"], given["sysctlUnreadable"]
    ):
        return {"bvt": None}
    if op == "kube_qos_hook":
        return {"bvt": known.kube_qos_dir.get(given["kubeQOS"], 0)}
    qos = (given["podLabels"] or {}).get(LABEL_QOS_CLASS, "")
    if qos == "LS":
        text = (given["podAnnotations"] or {}).get(pod_view.ANNOTATION_CPU_QOS)
        if text is not None:
            try:
                return {"bvt": identity.parsed_identity(text)}
            except ValueError:
                return {"bvt": None}
    return {"bvt": identity.pod_identity(known, qos, kube_qos_of_dir(given["cgroupParent"]).value)}
