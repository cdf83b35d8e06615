"""Descheduler: from a vector's `given` to what the service's own rules say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.objects.node import Node
from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.qos import priority_default
from cotenant.domain.selectors import SelectorError
from cotenant.events.migrations import AnomalyStreak, DetectorState, JobCondition, Migration
from cotenant.model.quantities import resource_amount
from cotenant.model.tiers import PriorityClass
from cotenant_descheduler_arbiter.config.policy import (
    AnomalyCondition,
    Budgets,
    CycleLimits,
    EvictableRules,
    LowNodeLoad,
    NodePool,
)
from cotenant_descheduler_arbiter.eviction.cycle_limits import CycleCounts
from cotenant_descheduler_arbiter.eviction.evictable import below_max_cost, why_not_evictable
from cotenant_descheduler_arbiter.eviction.fit import misfit
from cotenant_descheduler_arbiter.eviction.object_limiter import limited
from cotenant_descheduler_arbiter.eviction.order import creation_seconds, sort_pods
from cotenant_descheduler_arbiter.low_node_load.anomaly import mark, reset
from cotenant_descheduler_arbiter.low_node_load.classify import LoadClass
from cotenant_descheduler_arbiter.low_node_load.pool_cycle import run_cycle
from cotenant_descheduler_arbiter.low_node_load.pools import filter_nodes
from cotenant_descheduler_arbiter.low_node_load.reason import over_utilized_reason
from cotenant_descheduler_arbiter.low_node_load.scoring import most_requested, percent_floor
from cotenant_descheduler_arbiter.low_node_load.sorting import rank_by_excess, sort_nodes, sort_pods_by_excess
from cotenant_descheduler_arbiter.low_node_load.thresholds import band_amounts, fill_band
from cotenant_descheduler_arbiter.migration.arbitration import REASON_FORBIDDEN, ArbitrationResult, decide, run_round
from cotenant_descheduler_arbiter.migration.budgets import expected_replicas, globally, per_namespace, per_node, per_workload
from cotenant_descheduler_arbiter.migration.conditions import condition_of, with_condition
from cotenant_descheduler_arbiter.migration.job_decisions import retention
from cotenant_descheduler_arbiter.migration.jobs.facts import JobFacts, job_moving
from cotenant_descheduler_arbiter.migration.jobs.index import JobIndex
from cotenant_descheduler_arbiter.migration.jobs.order import (
    by_controller,
    by_creation,
    by_migrating,
    by_pod,
    migrating_jobs,
)
from cotenant_descheduler_arbiter.migration.max_unavailable import max_away
from cotenant_descheduler_arbiter.state.facts import NodeFacts, PodFacts
from cotenant_descheduler_arbiter.state.measuring import MeasuredNode, add_amounts, measure

Json = dict[str, Any]

ANNOTATION_PASSED = "descheduler.koordinator.sh/passed-arbitration"
START = datetime(2024, 1, 1, 12, 0, tzinfo=UTC)


class _PodStatus(msgspec.Struct):
    phase: str = ""
    conditions: list[dict[str, str]] = []


def _amounts(quantities: Json | None) -> dict[str, int]:
    return {name: resource_amount(name, text) for name, text in (quantities or {}).items()}


def _pod(document: Json) -> PodFacts:
    pod: Pod = decode_pod(msgspec.json.encode(document))
    status = msgspec.convert(document.get("status", {}), _PodStatus)
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in status.conditions)
    return PodFacts(
        pod=pod,
        node=pod.spec.node_name,
        phase=status.phase,
        ready=ready,
        amounts=tuple(pod_requests(pod).items()),
        prod=priority_default(pod) is PriorityClass.PROD,
    )


def _node(document: Json, pods: list[PodFacts]) -> NodeFacts:
    node = msgspec.convert(document, Node)
    here = [pod for pod in pods if pod.node == node.metadata.name and not pod.ended]
    raw = node.metadata.annotations.get("node.koordinator.sh/raw-allocatable")
    declared = msgspec.json.decode(raw) if raw else {}
    return NodeFacts(
        name=node.metadata.name,
        labels=node.metadata.labels,
        taints=tuple(node.spec.taints),
        unschedulable=node.spec.unschedulable,
        allocatable=_amounts(node.status.allocatable),
        raw_allocatable=_amounts(declared),
        requested=add_amounts(*(pod.requests for pod in here)),
        pod_count=len(here),
    )


def _rules(args: Json) -> EvictableRules:
    selector = args.get("labelSelector")
    return EvictableRules(
        evict_failed_bare_pods=args.get("evictFailedBarePods", False),
        evict_all_bare_pods=args.get("evictAllBarePods", False),
        evict_local_storage_pods=args.get("evictLocalStoragePods", False),
        evict_system_critical_pods=args.get("evictSystemCriticalPods", False),
        ignore_pvc_pods=args.get("ignorePvcPods", False),
        priority_threshold=(args.get("priorityThreshold") or {}).get("value"),
        label_selector=msgspec.convert(selector, LabelSelector) if selector is not None else None,
        skip_gates=frozenset(args.get("skipEvictionGates", ())),
    )


def _condition(document: Json | None) -> AnomalyCondition | None:
    if document is None:
        return None
    return AnomalyCondition(
        consecutive_abnormalities=document.get("consecutiveAbnormalities", 5),
        consecutive_normalities=document.get("consecutiveNormalities", 3),
    )


def _selector(document: Json | None) -> LabelSelector | None:
    return msgspec.convert(document, LabelSelector) if document is not None else None


def _pool(document: Json) -> NodePool:
    return NodePool(
        name=document.get("name", ""),
        node_selector=_selector(document.get("nodeSelector")),
        use_deviation_thresholds=document.get("useDeviationThresholds", False),
        low_thresholds=document.get("lowThresholds") or {},
        high_thresholds=document.get("highThresholds") or {},
        prod_low_thresholds=document.get("prodLowThresholds") or {},
        prod_high_thresholds=document.get("prodHighThresholds") or {},
        resource_weights=document.get("resourceWeights") or {},
        anomaly_condition=_condition(document.get("anomalyCondition")),
    )


def low_node_load(given: Json, *, name: str) -> object:
    pods = [_pod(document) for document in given["pods"]]
    nodes = [_node(document, pods) for document in given["nodes"]]
    metrics = {document["metadata"]["name"]: document["status"] for document in given["nodeMetrics"]}
    measured: dict[str, MeasuredNode] = {}
    for node in nodes:
        status = metrics.get(node.name)
        if status is None or status.get("nodeMetric") is None:
            continue
        usage = {
            f"{each['namespace']}/{each['name']}": _amounts(each.get("podUsage", {}).get("resources"))
            for each in status.get("podsMetric") or ()
        }
        system = _amounts((status["nodeMetric"].get("systemUsage") or {}).get("resources"))
        here = [pod for pod in pods if pod.node == node.name and not pod.ended]
        measured[node.name] = measure(node, here, system, usage)
    args, rules = given["args"], _rules(given.get("evictor") or {})
    counts = CycleCounts(msgspec.convert(given.get("limits") or {}, CycleLimits))

    def why_not_now(facts: PodFacts) -> str | None:
        refusal = counts.refusal(facts.node, facts.namespace)
        if refusal is None:
            counts.count(facts.node, facts.namespace)
        return refusal

    result = run_cycle(
        LowNodeLoad(
            pools=tuple(_pool(each) for each in args["nodePools"]),
            number_of_nodes=args.get("numberOfNodes", 0),
            node_fit=args.get("nodeFit", True),
        ),
        nodes,
        measured,
        {},
        (),
        START,
        why_not_movable=lambda facts: why_not_evictable(facts, rules),
        why_not_now=why_not_now,
    )
    later: dict[str, list[str]] = {str(each): [] for each in LoadClass if each is not LoadClass.NORMAL}
    for classes in result.classes.values():
        for node_name, load_class in classes.items():
            if load_class is not LoadClass.NORMAL:
                later[str(load_class)].append(node_name)
    return {"evictedCount": len(result.moves), "classification": {"later": later}}


def low_node_load_reason(given: Json, *, name: str) -> object:
    prod = given.get("prod", False)
    node = _node(given["node"], [])
    percent = given["prodHighThresholds"] if prod else given["highThresholds"]
    band = fill_band({}, percent, sorted(percent), deviation=False)
    return {
        "reason": over_utilized_reason(
            _amounts(given["prodUsage"] if prod else given["usage"]),
            band_amounts(band, node.capacity_for_load).high,
            band.high,
            node.capacity_for_load,
            prod=prod,
        )
    }


def low_node_load_pool_filter(given: Json, *, name: str) -> object:
    nodes = [msgspec.convert(document, Node) for document in given["nodes"]]
    try:
        selected = filter_nodes(
            _selector(given["nodeSelector"]),
            [(node.metadata.name, node.metadata.labels) for node in nodes],
            given.get("processedNodes") or (),
        )
    except SelectorError:
        return {"error": True}
    return {"nodes": selected}


def low_node_load_anomaly(given: Json, *, name: str) -> object:
    condition = _condition(given["condition"])
    detectors: dict[str, AnomalyStreak] = {}
    results: list[object] = []
    for step in given["steps"]:
        for node in step["nodes"]:
            before = detectors.get(node, AnomalyStreak())
            if step["do"] == "reset":
                detectors[node] = reset(before)
            elif condition is not None and not condition.immediate:
                detectors[node] = mark(before, condition, START, normal=step["do"] == "markNormal")
        if step["do"] == "markAbnormal":
            immediate = condition is None or condition.immediate
            results.append(
                [node for node in step["nodes"] if immediate or detectors[node].state is DetectorState.ANOMALY]
            )
        else:
            results.append({node: str(detectors.get(node, AnomalyStreak()).state) for node in step["nodes"]})
    return {"results": results}


def anomaly_detector(given: Json, *, name: str) -> object:
    detector = given["detector"]
    condition = AnomalyCondition(
        timeout=timedelta(seconds=detector["timeoutSeconds"]),
        consecutive_abnormalities=detector["anomalyWhenConsecutiveAbnormalitiesAtLeast"] - 1,
        consecutive_normalities=detector["normalWhenConsecutiveNormalitiesAtLeast"] - 1,
    )
    state, states = AnomalyStreak(), []
    for each in given["marks"]:
        state = mark(state, condition, START + timedelta(seconds=each["at"]), normal=each["normal"])
        states.append(str(state.state))
    return {"states": states}


def pod_sort(given: Json, *, name: str) -> object:
    usage = {key: _amounts(each) for key, each in (given.get("podMetrics") or {}).items()}
    pods = [_pod(document) for document in given["pods"]]
    excess, weights = _amounts(given.get("exceededBy")), given["resourceWeights"]
    order = sort_pods_by_excess([(pod, usage.get(pod.key)) for pod in pods], excess, weights)
    groups = groupby(order, key=lambda pod: rank_by_excess(pod, usage.get(pod.key), excess, weights))
    ties = [names for _, group in groups if len(names := [pod.name for pod in group]) > 1]
    return {"order": [pod.name for pod in order], "ties": ties}


def node_sort(given: Json, *, name: str) -> object:
    nodes = [(each["name"], _amounts(each["usage"]), _amounts(each["allocatable"])) for each in given["nodes"]]
    return {"order": sort_nodes(nodes, given["resourceWeights"], ascending=given.get("ascending", False))}


def node_usage_percent(given: Json, *, name: str) -> object:
    return {"floorPercent": percent_floor(_amounts(given["usage"]), _amounts(given["allocatable"]))}


def usage_score(given: Json, *, name: str) -> object:
    return {"score": most_requested(given["usage"], given["capacity"])}


def evictor_filter(given: Json, *, name: str) -> object:
    args = given["args"]
    pod = _pod(given["pod"])
    others = [_pod(document) for document in given.get("otherPods") or ()]
    reason = why_not_evictable(pod, _rules(args))
    if reason is None and args.get("nodeFit"):
        nodes = [_node(document, [pod, *others]) for document in given["nodes"]]
        if all(misfit(pod, node) is not None for node in nodes if node.name != pod.node):
            reason = "no other node takes it"
    return {"evictable": reason is None}


def eviction_limiter(given: Json, *, name: str) -> object:
    counts = CycleCounts(msgspec.convert(given["limits"], CycleLimits))
    allowed = []
    for pod in given["pods"]:
        refusal = counts.refusal(pod.get("nodeName", ""), pod["namespace"])
        allowed.append(refusal is None)
        if refusal is None:
            counts.count(pod.get("nodeName", ""), pod["namespace"])
    nodes = {pod.get("nodeName", "") for pod in given["pods"]}
    namespaces = {pod["namespace"] for pod in given["pods"]}
    return {
        "allowed": allowed,
        "nodeCounts": {node: counts.per_node.get(node, 0) for node in sorted(nodes) if node},
        "namespaceCounts": {each: counts.per_namespace.get(each, 0) for each in sorted(namespaces)},
        "total": counts.total,
        "nodeLimitExceeded": {node: counts.node_full(node) for node in sorted(nodes)},
        "namespaceLimitExceeded": {each: counts.namespace_full(each) for each in sorted(namespaces)},
    }


def max_unavailable(given: Json, *, name: str) -> object:
    return {"result": max_away(given["replicas"], given.get("intOrPercent"))}


def max_eviction_cost(given: Json, *, name: str) -> object:
    return {"pass": below_max_cost(_pod(given["pod"]).pod)}


def object_limiter(given: Json, *, name: str) -> object:
    now = START + timedelta(seconds=given["at"])
    exceeded = False
    for kind, limiter in given["objectLimiters"].items():
        times = [
            START + timedelta(seconds=each["at"])
            for each in given["evictions"]
            if each[kind] == given["pod"][kind]
        ]
        allowed = limiter.get("maxMigrating")
        exceeded = exceeded or limited(
            times,
            duration=timedelta(seconds=limiter["durationSeconds"]),
            max_migrating=max_away(given["replicas"], allowed) if kind == "workload" else int(allowed or 0),
            burst=limiter.get("burst", 1),
            now=now,
        )
    return {"limited": exceeded}


def _job(document: Json) -> JobFacts:
    meta, ref = document["metadata"], document["spec"]["podRef"]
    return JobFacts(
        name=meta["name"],
        namespace=ref.get("namespace", ""),
        pod=ref.get("name", ""),
        uid=ref.get("uid", ""),
        created=creation_seconds(meta.get("creationTimestamp")),
        phase=(document.get("status") or {}).get("phase", ""),
        passed=(meta.get("annotations") or {}).get(ANNOTATION_PASSED) == "true",
    )


def _pods(documents: list[Json]) -> dict[str, PodFacts]:
    return {pod.key: pod for pod in map(_pod, documents)}


def arbitrator_decision(given: Json, *, name: str) -> object:
    verdict, _ = decide(
        given["podExists"],
        None if given["nonRetryablePass"] else "forbidden",
        None if given["retryablePass"] else "exhausted",
    )
    return {"failed": verdict is ArbitrationResult.FAILED, "passed": verdict is ArbitrationResult.PASSED}


def arbitrator_round(given: Json, *, name: str) -> object:
    rank = given["rank"]
    jobs = [JobFacts(name=each, namespace="default", pod=each) for each in given["jobs"]]
    order = by_pod(jobs, {job.pod_key: rank[job.name] for job in jobs})
    decisions = run_round(
        order,
        lambda job: True,
        lambda job: "forbidden" if job.name in given["nonRetryableFails"] else None,
        lambda job: "exhausted" if job.name in given["retryableFails"] else None,
        lambda job: None,
    )
    verdicts = {decision.job: decision.verdict for decision in decisions}
    return {
        **{str(verdict): [each for each in given["jobs"] if verdicts[each] is verdict] for verdict in ArbitrationResult},
        "failedReason": REASON_FORBIDDEN,
    }


def arbitrator_sort(given: Json, *, name: str) -> object:
    jobs = [_job(document) for document in given["jobs"]]
    everything = [*jobs, *(_job(document) for document in given.get("otherJobs") or ())]
    pods = _pods(given["pods"])
    match given["sort"]:
        case "byPod":
            ranks = given.get("podRank")
            if ranks is None:
                ordered_pods = sort_pods(list(pods.values()))
                ranks = {pod.name: index for index, pod in enumerate(ordered_pods)}
            order = by_pod(jobs, {key: ranks[pod.name] for key, pod in pods.items() if pod.name in ranks})
        case "byCreationTime":
            order = by_creation(jobs)
        case "byController":
            order = by_controller(jobs, pods)
        case _:
            order = by_migrating(jobs, everything, pods)
    return {"order": [job.name for job in order]}


def arbitrator_migrating_num(given: Json, *, name: str) -> object:
    jobs = [_job(document) for document in given["jobs"]]
    return {"count": migrating_jobs(given["ownerUID"], jobs, _pods(given["pods"]))}


def arbitrator_filter(given: Json, *, name: str) -> object:
    args = given["args"]
    budgets = Budgets(
        max_migrating_globally=args.get("maxMigratingGlobally"),
        max_migrating_per_node=args.get("maxMigratingPerNode"),
        max_migrating_per_namespace=args.get("maxMigratingPerNamespace"),
        max_migrating_per_workload=args.get("maxMigratingPerWorkload"),
        max_unavailable_per_workload=args.get("maxUnavailablePerWorkload"),
        skip_check_expected_replicas=bool(args.get("skipCheckExpectedReplicas")),
        skip_gates=frozenset(given.get("skipEvictionGates") or ()),
    )
    pod = _pod(given["pod"])
    pods = _pods([*given["pods"], *(given.get("workloadPods") or ()), given["pod"]])
    jobs = JobIndex([_job(document) for document in given["jobs"]], pods.get, arbitrating=True).everywhere(pod)
    reason: object
    match given["filter"]:
        case "existingJob":
            reason = job_moving([_job(document) for document in given["jobs"]], pod.key, pod.uid)
        case "expectedReplicas":
            reason = expected_replicas(pod, given["expectedReplicas"], budgets)
        case "maxMigratingGlobally":
            reason = globally(jobs, budgets)
        case "maxMigratingPerNode":
            reason = per_node(pod, jobs, pods, budgets)
        case "maxMigratingPerNamespace":
            reason = per_namespace(pod, jobs, budgets)
        case _:
            workload = [_pod(document) for document in given["workloadPods"]]
            reason = per_workload(pod, jobs, pods, given["expectedReplicas"], workload, budgets)
    return {"pass": reason is None}


def pmj_condition(given: Json, *, name: str) -> object:
    conditions = tuple(msgspec.convert(each, JobCondition) for each in given["conditions"])
    before = Migration(job="job", namespace="default", pod="pod", uid="", conditions=conditions)
    update = msgspec.convert(given["update"], JobCondition)
    after = with_condition(before, update, START)
    return {"changed": after != before, "stored": msgspec.to_builtins(condition_of(after, update.type))}


def pmj_scavenge(given: Json, *, name: str) -> object:
    kept = [
        job["name"]
        for job in given["jobs"]
        if timedelta(seconds=job["ageSeconds"]) < retention(job.get("ttlSeconds", 0))
    ]
    return {"kept": kept}
