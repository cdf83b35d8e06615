"""Machines, and the services placed on them: arrivals, machines, lifetimes.

In: machines and pods of a trace (openb's, or generated ones of the same form), how many machines, how full, a seed. Out: a
`Population`: for each pod its machine and its steps.

- Machines: drawn from the trace's by the seed.
- Services: all pods but best-effort ones (BE). These are the ones that an offer is for; there is always enough batch work, so
  that an offer is used as far as the machine lets it.
- Time: the trace's busy part, from the 2 % quantile of arrivals on, is mapped onto the span; lifetimes stay as they are, and go
  on from the beginning if they reach beyond the end, so that the first step is as full as any other. Earlier pods are
  present all the time. Each of several days has the same arrivals, shifted by another part of a day.
- How full: pods are left out at random until services request `fill` of the capacity on average.
- Where: the machine with the largest free part of its CPU that has room for the request, as the scheduler spreads by default;
  a pod that fits nowhere is left out and counted.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from cotenant_verification.simulate.openb import OpenbTrace, TraceNode, TracePod
from cotenant_verification.simulate.usage.rates import DAY_STEPS, STEP_SECONDS

Integers = npt.NDArray[np.int64]

BEST_EFFORT = "BE"
BUSY_QUANTILE = 0.02
FILL = 0.8


class ServicePod(msgspec.Struct, frozen=True):
    """A pod on its machine from step `first` on, before step `end`. `number` seeds its noise, and says which service it is
    of."""

    number: int
    node: int
    request_milli: int
    first: int
    end: int


class Population(msgspec.Struct, frozen=True):
    """`unplaced`: pods that fitted nowhere."""

    capacities: Integers
    pods: tuple[ServicePod, ...]
    unplaced: int = 0


def populate(trace: OpenbTrace, nodes: int, steps: int, seed: int, fill: float = FILL) -> Population:
    """The machines and pods of a run over this many steps."""
    random = np.random.default_rng([seed, 3])
    capacities = np.array([node.cpu_milli for node in trace.nodes], dtype=np.int64)
    chosen = capacities[np.sort(random.permutation(len(capacities))[:nodes])]
    pods = [pod for pod in trace.pods if pod.qos != BEST_EFFORT and pod.cpu_milli > 0]
    arrivals: list[tuple[int, int, int, int]] = []
    days = max(round(steps / DAY_STEPS), 1) if steps > DAY_STEPS else 1
    length = -(-steps // days)
    budget = fill * float(chosen.sum()) * length
    for number, (first, lifetime) in zip(*_thinned(pods, length, budget, random), strict=True):
        request = pods[number].cpu_milli
        if lifetime >= length:
            arrivals.append((0, steps, number, request))
            continue
        for day in range(days):
            shifted = (first + (int(random.integers(length)) if day else 0)) % length + day * length
            arrivals += _wrapped(shifted, lifetime, steps, number + day * len(pods), request)
    return _placed(chosen, sorted(arrivals))


def _thinned(
    pods: Sequence[TracePod], length: int, budget: float, random: np.random.Generator
) -> tuple[list[int], list[tuple[int, int]]]:
    """The pods of the run, with their first step and lifetime in steps within `length`."""
    if not pods:
        return [], []
    created = np.array([pod.created for pod in pods], dtype=np.float64)
    begin, end = float(np.quantile(created, BUSY_QUANTILE)), float(created.max())
    lifetimes = []
    for pod in pods:
        if pod.created < begin or end <= begin:
            lifetimes.append((0, length))
        else:
            first = min(int((pod.created - begin) / (end - begin) * length), length - 1)
            lifetimes.append((first, min(max((pod.deleted - pod.created) // STEP_SECONDS, 1), length)))
    numbers: list[int] = []
    for number in random.permutation(len(pods)).tolist():
        taken = pods[number].cpu_milli * lifetimes[number][1]
        if taken <= budget:
            budget -= taken
            numbers.append(number)
    numbers.sort()
    return numbers, [lifetimes[number] for number in numbers]


def _wrapped(first: int, lifetime: int, steps: int, number: int, request: int) -> list[tuple[int, int, int, int]]:
    end = first + lifetime
    parts = [(first, min(end, steps), number, request)]
    if end > steps:
        parts.append((0, min(end - steps, first), number, request))
    return [part for part in parts if part[1] > part[0]]


def _placed(capacities: Integers, arrivals: Sequence[tuple[int, int, int, int]]) -> Population:
    free = capacities.astype(np.float64)
    leaving: list[tuple[int, int, int]] = []
    pods: list[ServicePod] = []
    unplaced = 0
    for first, end, number, request in arrivals:
        while leaving and leaving[0][0] <= first:
            _, node, freed = heapq.heappop(leaving)
            free[node] += freed
        node = int(np.argmax(np.where(free >= request, free / capacities, -1.0))) if len(free) else 0
        if not len(free) or free[node] < request:
            unplaced += 1
            continue
        free[node] -= request
        heapq.heappush(leaving, (end, node, request))
        pods.append(ServicePod(number, node, request, first, end))
    return Population(capacities, tuple(pods), unplaced)


def generated_trace(seed: int, nodes: int) -> OpenbTrace:
    """Machines and pods of the same form: most small, lifetimes over four orders of magnitude."""
    random = np.random.default_rng([seed, 4])
    sizes = random.choice([32_000, 64_000, 96_000, 104_000], nodes, p=[0.2, 0.1, 0.45, 0.25])
    machines = tuple(TraceNode(f"node-{number:04}", int(size), int(size) * 4, 0, "") for number, size in enumerate(sizes))
    pods = []
    span = 86_400
    for number in range(nodes * 80):
        created = int(random.integers(span))
        lifetime = int(np.clip(random.pareto(0.8) * 600, 60, 4 * span))
        request = int(random.choice([1000, 4000, 8000, 11_000, 16_000]))
        pods.append(TracePod(f"pod-{number:05}", request, 1024, 0, 0, (), "LS", created, created + lifetime))
    return OpenbTrace(machines, tuple(sorted(pods, key=lambda pod: (pod.created, pod.name))))
