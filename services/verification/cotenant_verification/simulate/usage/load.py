"""Usage of services on each machine, step by step, and the control plane's view of it.

In: rates, a population, u, a seed. Out: `MachineLoads`, arrays over machines and steps of STEP_SECONDS.

    use of a pod     = request x u x rate / p99 of rate x noise, at most its request
    noise            = 1 + 0.15 x normal, at least 0, with a correlation time of two minutes, drawn for each pod from the seed
    system           = 2 % of the machine

What is known is what metrics-ingest reports: once a minute the mean of each pod's samples in the five minutes before. Until the
first report after its first sample a pod is unknown and counts with its request; a pod that has left is in the report until the
next one. That is what the batch formula's sums are made of: `used`, `request`, `max_used_request` (`sum_need` of the formula
gives the same, which a test holds).
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from cotenant_verification.simulate.usage.population import Population, ServicePod
from cotenant_verification.simulate.usage.rates import STEP_SECONDS, Floats, Rates

REPORT_STEPS = 60 // STEP_SECONDS
WINDOW_STEPS = 300 // STEP_SECONDS
SYSTEM_PERCENT = 2
NOISE = 0.15
_NOISE_STEPS = 8


class MachineLoads(msgspec.Struct, frozen=True):
    """(machines, steps) in milli-CPUs. `real`: use of services; `request`, `used`, `max_used_request`: as the control plane
    knows them, `assumed` the part of `used` that is requests of pods without a report. `minutes`: highest `real` of each
    report interval, (machines, reports); `pods` by machine, each with its highest use of each report interval that it has
    run in."""

    capacities: npt.NDArray[np.int64]
    system: npt.NDArray[np.int64]
    real: Floats
    request: Floats
    used: Floats
    assumed: Floats
    max_used_request: Floats
    minutes: Floats
    pods: tuple[tuple[tuple[ServicePod, Floats], ...], ...]

    @property
    def steps(self) -> int:
        """Number of steps."""
        return int(self.real.shape[1])


def load_of(rates: Rates, population: Population, u: float, seed: int, deviation: float = NOISE) -> MachineLoads:
    """The load of a run; `deviation`: standard deviation of the noise."""
    shape = len(population.capacities), rates.steps
    real, request, used, assumed, max_used = (np.zeros(shape) for _ in range(5))
    pods: list[list[tuple[ServicePod, Floats]]] = [[] for _ in population.capacities]
    for pod in population.pods:
        use = use_of(pod, rates, u, seed, deviation)
        real[pod.node, pod.first : pod.end] += use
        request[pod.node, pod.first : pod.end] += pod.request_milli
        assumed[pod.node, pod.first : min(first_report(pod), pod.end)] += pod.request_milli
        known, larger = _known(pod, use, rates.steps)
        last = min(pod.first + len(known), rates.steps)
        used[pod.node, pod.first : last] += known[: last - pod.first]
        max_used[pod.node, pod.first : last] += larger[: last - pod.first]
        pods[pod.node].append((pod, minutes_of(use, pod.first)))
    system = population.capacities * SYSTEM_PERCENT // 100
    by_node = tuple(tuple(each) for each in pods)
    return MachineLoads(population.capacities, system, real, request, used, assumed, max_used, _highest(real), by_node)


def use_of(pod: ServicePod, rates: Rates, u: float, seed: int, deviation: float = NOISE) -> Floats:
    """A pod's usage (float64, milli-CPUs, a step each) from its first step on."""
    length = pod.end - pod.first
    random = np.random.default_rng([seed, 5, pod.number])
    drawn = random.standard_normal(length + _NOISE_STEPS - 1)
    noise = np.convolve(drawn, np.full(_NOISE_STEPS, _NOISE_STEPS**-0.5), mode="valid")
    rate = rates.rates[pod.number % len(rates.services), pod.first : pod.end]
    return np.clip(pod.request_milli * u * rate * np.maximum(1 + deviation * noise, 0.0), 0.0, pod.request_milli)


def first_report(pod: ServicePod) -> int:
    """The step of the first report that includes a pod."""
    return (pod.first // REPORT_STEPS + 1) * REPORT_STEPS


def _known(pod: ServicePod, use: Floats, steps: int) -> tuple[Floats, Floats]:
    """A pod's counted usage, and the larger of usage and request, from its first step until it is no longer counted."""
    length = pod.end - pod.first
    first = first_report(pod)
    last_report = (pod.end - 1) // REPORT_STEPS * REPORT_STEPS + REPORT_STEPS
    until = min(last_report + REPORT_STEPS, steps) - pod.first if first < steps else length
    known = np.full(max(until, length), float(pod.request_milli))
    reports = np.arange(first, min(last_report + 1, steps), REPORT_STEPS)
    if not len(reports):
        return known[:length], known[:length]
    sums = np.concatenate(([0.0], np.cumsum(use)))
    high = np.minimum(reports - pod.first, length)
    low = np.minimum(np.maximum(reports - WINDOW_STEPS - pod.first, 0), high - 1)
    means = (sums[high] - sums[low]) / (high - low)
    held = np.repeat(means, REPORT_STEPS)
    begin = first - pod.first
    known = np.concatenate((known[:begin], held))[: max(until, length)]
    known[length:begin] = 0.0
    larger = known.copy()
    larger[:length] = np.maximum(known[:length], pod.request_milli)
    return known, larger


def minutes_of(use: Floats, first: int) -> Floats:
    """The highest use (float64, milli-CPUs, an interval each) of each report interval from the one of step `first` on."""
    lead = first % REPORT_STEPS
    tail = -(lead + len(use)) % REPORT_STEPS
    padded = np.concatenate((np.zeros(lead), use, np.zeros(tail)))
    return np.asarray(padded.reshape(-1, REPORT_STEPS).max(axis=1))


def _highest(real: Floats) -> Floats:
    tail = -real.shape[1] % REPORT_STEPS
    padded = np.pad(real, ((0, 0), (0, tail)))
    return np.asarray(padded.reshape(len(real), padded.shape[1] // REPORT_STEPS, REPORT_STEPS).max(axis=2))
