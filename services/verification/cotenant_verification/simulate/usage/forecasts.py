"""Forecasts of the peak of services, as metrics-ingest computes them: none, the histogram's, and the one by time of day.

In: a `MachineLoads`. Out: for each report and machine the forecast of its services' peak (NaN: none), and mid's part of
prod's requests. The histograms, the profiles, the choice between them and the predictors are those of metrics-ingest; a
`Predictor` is given each report's peaks before it is asked, and never one that lies ahead.

- histogram: p95 of the models of tiers prod and none, plus the safety margin of 10 % (of which mid's priority predictor takes
  the system's in addition). Trained once a minute.
- by time of day: the seasonal profile of the services' peak, where it has been the better of the two on this machine of late,
  else the histogram.
- mid by histogram: the smaller of pod and priority predictor. Pods younger than COLD_START_SECONDS add nothing; the default of
  24 h is longer than the trace, so one hour stands for it.
- mid by time of day: the priority predictor with the forecast in place of the histogram's peak.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec
import numpy as np

from cotenant.events.node.metrics import Usage
from cotenant_metrics_ingest.prediction.buckets import Floats
from cotenant_metrics_ingest.prediction.forecast_choice import Accuracy, ForecastChoice
from cotenant_metrics_ingest.prediction.histogram import Histograms
from cotenant_metrics_ingest.prediction.models import CPU_BUCKETS, CPU_HALF_LIFE_SECONDS, EPSILON
from cotenant_metrics_ingest.prediction.predictors import PodRequest, predict
from cotenant_metrics_ingest.prediction.seasonal import QUARTER_SECONDS, SeasonalProfiles, quarter_of
from cotenant_verification.simulate.usage.load import REPORT_STEPS, MachineLoads
from cotenant_verification.simulate.usage.population import ServicePod
from cotenant_verification.simulate.usage.rates import STEP_SECONDS

NONE, HISTOGRAM, SEASON = "none", "histogram", "time of day"
PREDICTIONS = (NONE, HISTOGRAM, SEASON)
PEAK_PERCENTILE = 0.95
MARGIN_PERCENT = 10
COLD_START_SECONDS = 3600
REPORT_SECONDS = REPORT_STEPS * STEP_SECONDS


class Predictor(Protocol):
    """Many machines at once; milli-CPUs."""

    def observe(self, seconds: float, peaks: Floats) -> None:
        """Fold the highest use of each machine's services (float64, milli-CPUs, a machine each) in the interval that ends
        now."""

    def forecast(self, seconds: float) -> Floats:
        """Their predicted peak until the offer can be taken back (float64, milli-CPUs, a machine each); NaN: unknown."""


class NoPrediction:
    """No forecast."""

    def __init__(self, machines: int) -> None:
        self._machines = machines

    def observe(self, seconds: float, peaks: Floats) -> None:
        """Forget it."""

    def forecast(self, seconds: float) -> Floats:  # noqa: ARG002
        """NaN for each."""
        return np.full(self._machines, np.nan)


class ByHistogram:
    """The models of tiers prod and none, which here has no pods."""

    def __init__(self, machines: int) -> None:
        self._count = machines
        self._rows = np.arange(2 * machines)
        self._models = Histograms(CPU_BUCKETS, CPU_HALF_LIFE_SECONDS, EPSILON, 2 * machines)
        self._known = False

    def observe(self, seconds: float, peaks: Floats) -> None:
        """Train the models of prod and none of each machine."""
        self._models.add(self._rows, np.concatenate((peaks / 1000, np.zeros(self._count))), 1.0, seconds)
        self._known = True

    def forecast(self, seconds: float) -> Floats:  # noqa: ARG002
        """p95 with the margin."""
        if not self._known:
            return np.full(self._count, np.nan)
        milli = np.trunc(self._models.percentiles([PEAK_PERCENTILE])[:, 0] * 1000)
        return np.trunc((milli[: self._count] + milli[self._count :]) * ((100 + MARGIN_PERCENT) / 100))


class BySeason:
    """The profile by time of day, where it has been better than the histogram."""

    def __init__(self, machines: int) -> None:
        self.choice = ForecastChoice(machines)
        self._machines = np.arange(machines)
        self._histogram = ByHistogram(machines)
        self._profiles = SeasonalProfiles(CPU_BUCKETS, machines)
        self._made: tuple[Floats, Floats] | None = None
        self._quarter = -1
        self._peak = np.full(machines, np.nan)

    def observe(self, seconds: float, peaks: Floats) -> None:
        """Train both; at the end of a quarter hour evaluate both forecasts made when it began."""
        middle = seconds - REPORT_SECONDS / 2
        quarter = quarter_of(middle)
        if quarter != self._quarter:
            if self._made is not None:
                self.choice.judge(*self._made, self._peak)
            made = self._both(quarter * QUARTER_SECONDS)
            self._made = made if self._quarter >= 0 else None
            self._quarter, self._peak = quarter, np.full(len(peaks), np.nan)
        self._peak = np.fmax(self._peak, peaks)
        self._histogram.observe(middle, peaks)
        self._profiles.add(self._machines, peaks / 1000, middle)

    def forecast(self, seconds: float) -> Floats:
        """The forecast in force."""
        return self.choice.choose(*self._both(seconds))

    def _both(self, seconds: float) -> tuple[Floats, Floats]:
        return np.trunc(self._profiles.forecast(seconds) * 1000), self._histogram.forecast(seconds)


def predictor_of(prediction: str, machines: int) -> Predictor:
    """The predictor of this name."""
    if prediction == HISTOGRAM:
        return ByHistogram(machines)
    return BySeason(machines) if prediction == SEASON else NoPrediction(machines)


class Forecasts(msgspec.Struct, frozen=True):
    """`peaks`: (machines, reports) milli-CPUs, NaN where there is none. `reclaimable`: of prod's requests, (machines, reports).
    `accuracy`: of each machine at the end, by time of day only."""

    peaks: Floats
    reclaimable: Floats
    accuracy: tuple[Accuracy, ...] = ()


def forecasts_of(load: MachineLoads, prediction: str, begin: float, *, mid: bool = True) -> Forecasts:
    """All forecasts of a run; report number k is made from the samples before step k x REPORT_STEPS. `mid` False: without
    what is reclaimable."""
    machines, reports = load.minutes.shape
    predictor = predictor_of(prediction, machines)
    peaks = np.full((machines, reports), np.nan)
    for report in range(1, reports):
        seconds = begin + report * REPORT_SECONDS
        predictor.observe(seconds, load.minutes[:, report - 1])
        peaks[:, report] = predictor.forecast(seconds)
    accuracy: tuple[Accuracy, ...] = ()
    if isinstance(predictor, BySeason):
        accuracy = tuple(predictor.choice.accuracy(machine) for machine in range(machines))
    if prediction == NONE or not mid:
        return Forecasts(peaks, np.zeros((machines, reports)), accuracy)
    reclaimable = _by_both(load, peaks, begin) if prediction == HISTOGRAM else _by_priority(load, peaks)
    return Forecasts(peaks, reclaimable, accuracy)


def _by_both(load: MachineLoads, peaks: Floats, begin: float) -> Floats:
    """What of prod's requests will not be used: the smaller of pod and priority predictor."""
    found = np.zeros(peaks.shape)
    system = _system_peaks(load, begin)
    everywhere = zip(_living(load), _pod_peaks(load, begin), strict=True)
    for report, (living, own) in enumerate(everywhere):
        for machine in np.flatnonzero(np.isfinite(peaks[:, report])).tolist():
            peak = int(peaks[machine, report] * 100 / (100 + MARGIN_PERCENT)) + int(system[machine])
            requests = [
                PodRequest(
                    uid=str(place),
                    prod=True,
                    age_seconds=(report * REPORT_STEPS - pod.first) * STEP_SECONDS,
                    request=Usage(cpu_milli=pod.request_milli),
                )
                for place, pod in living[machine].items()
            ]
            known = {str(place): Usage(cpu_milli=milli) for place, milli in own[machine].items()}
            capacity = int(load.capacities[machine])
            found[machine, report] = _predicted(requests, known, peak, capacity, MARGIN_PERCENT)
    return found


def _by_priority(load: MachineLoads, peaks: Floats) -> Floats:
    """What of prod's requests will not be used, by the machine's forecast: pods count with a peak of 0 of their own, so that
    the priority predictor is the smaller one. The forecast already is one of a peak, so that it has no margin."""
    found = np.zeros(peaks.shape)
    for report in range(1, peaks.shape[1]):
        requested = load.request[:, report * REPORT_STEPS]
        for machine in np.flatnonzero(np.isfinite(peaks[:, report])).tolist():
            request = Usage(cpu_milli=int(requested[machine]))
            pods = [PodRequest(uid="prod", prod=True, age_seconds=COLD_START_SECONDS + 1, request=request)]
            peak = int(peaks[machine, report]) + int(load.system[machine])
            found[machine, report] = _predicted(pods, {"prod": Usage()}, peak, int(load.capacities[machine]), 0)
    return found


def _predicted(pods: list[PodRequest], own: dict[str, Usage], peak: int, capacity: int, margin_percent: int) -> int:
    prediction = predict(
        pods,
        own,
        {"services": Usage(cpu_milli=peak)},
        allocatable=Usage(cpu_milli=capacity),
        cold_start_seconds=COLD_START_SECONDS,
        margin_percent=margin_percent,
    )
    return prediction.reclaimable.cpu_milli if prediction.reclaimable is not None else 0


def _living(load: MachineLoads) -> Iterator[list[dict[int, ServicePod]]]:
    """By report: the pods that are on each machine, by their place in `load.pods`."""
    machines, reports = load.minutes.shape
    coming = sorted(
        ((pod.first, machine, place, pod) for machine, pods in enumerate(load.pods) for place, (pod, _) in enumerate(pods)),
        key=lambda each: each[:3],
        reverse=True,
    )
    living: list[dict[int, ServicePod]] = [{} for _ in range(machines)]
    for report in range(reports):
        step = report * REPORT_STEPS
        while coming and coming[-1][0] <= step:
            _, machine, place, pod = coming.pop()
            living[machine][place] = pod
        for here in living:
            for place in [place for place, pod in here.items() if pod.end <= step]:
                del here[place]
        yield living


def _pod_peaks(load: MachineLoads, begin: float) -> Iterator[list[dict[int, int]]]:
    """By report: p95 of each pod's model, by machine and the pod's place there."""
    machines, reports = load.minutes.shape
    starts: list[list[tuple[int, int, Floats]]] = [[] for _ in range(reports)]
    for machine, pods in enumerate(load.pods):
        for place, (pod, use) in enumerate(pods):
            starts[pod.first // REPORT_STEPS].append((machine, place, use))
    histograms = Histograms(CPU_BUCKETS, CPU_HALF_LIFE_SECONDS, EPSILON)
    there: list[tuple[int, int, int, Floats]] = []
    for report in range(reports):
        if there:
            values = np.array([use[report - 1 - born] for _, _, born, use in there])
            histograms.add(np.arange(len(there)), values / 1000, 1.0, begin + report * REPORT_SECONDS)
            kept = [row for row, (_, _, born, use) in enumerate(there) if report - born < len(use)]
            if len(kept) < len(there):
                histograms.keep(kept)
                there = [there[row] for row in kept]
        here: list[dict[int, int]] = [{} for _ in range(machines)]
        if there:
            milli = np.trunc(histograms.percentiles([PEAK_PERCENTILE])[:, 0] * 1000).astype(int).tolist()
            for (machine, place, _, _), peak in zip(there, milli, strict=True):
                here[machine][place] = peak
        yield here
        there += [(machine, place, report, use) for machine, place, use in starts[report]]
        histograms.widen(len(there))


def _system_peaks(load: MachineLoads, begin: float) -> Floats:
    """p95 of the system's model of each machine; what the system uses does not change."""
    machines = len(load.capacities)
    histograms = Histograms(CPU_BUCKETS, CPU_HALF_LIFE_SECONDS, EPSILON, machines)
    histograms.add(np.arange(machines), load.system / 1000, 1.0, begin)
    return np.trunc(histograms.percentiles([PEAK_PERCENTILE])[:, 0] * 1000)
