"""Forecasts of what services will use at most, as the services run them: none, the histogram's, and the one by time of day.

In: a `NodeLoad`. Out: for each report and machine the forecast of its services' peak (NaN: none), and what mid may have of
prod's requests. The histograms, the profiles, the choice between them and the predictors are those of metrics-ingest; a
`Predictor` is given each report's peaks before it is asked, and never one that lies ahead.

- histogram: p95 of the models of tiers prod and none, plus the safety margin of 10 % (of which mid's priority predictor takes
  the system's in addition). Trained once a minute.
- by time of day: the seasonal profile of the services' peak, where it has been the better of the two on this machine of late,
  else the histogram.
- mid by histogram: the smaller of pod and priority predictor. Pods younger than COLD_START_SECONDS lend nothing; the default of
  24 h is longer than the trace, so one hour stands for it.
- mid by time of day: the priority predictor with the forecast in place of the histogram's peak.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np

from cotenant.events.metrics import Usage
from cotenant_metrics_ingest.prediction.buckets import Floats
from cotenant_metrics_ingest.prediction.forecast_choice import Accuracy, ForecastChoice
from cotenant_metrics_ingest.prediction.histogram import Histograms
from cotenant_metrics_ingest.prediction.models import CPU_BUCKETS, CPU_HALF_LIFE_SECONDS, EPSILON
from cotenant_metrics_ingest.prediction.predictors import PodRequest, predict
from cotenant_metrics_ingest.prediction.seasonal import QUARTER_SECONDS, SeasonalProfiles, quarter_of
from cotenant_verification.simulate.usage.load import REPORT_STEPS, NodeLoad
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
        """Take in the highest use of each machine's services in the report interval that ends now."""

    def forecast(self, seconds: float) -> Floats:
        """What they will use at most until the loan can be taken back; NaN: nobody knows."""


class NoPrediction:
    """Knows nothing."""

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
        self._machines = np.arange(machines)
        self._prod, self._none = (Histograms(CPU_BUCKETS, CPU_HALF_LIFE_SECONDS, EPSILON, machines) for _ in range(2))
        self._known = False

    def observe(self, seconds: float, peaks: Floats) -> None:
        """Train both."""
        self._prod.add(self._machines, peaks / 1000, 1.0, seconds)
        self._none.add(self._machines, np.zeros(len(peaks)), 1.0, seconds)
        self._known = True

    def forecast(self, seconds: float) -> Floats:  # noqa: ARG002
        """p95 with the margin."""
        if not self._known:
            return np.full(len(self._machines), np.nan)
        both = [np.trunc(each.percentiles([PEAK_PERCENTILE])[:, 0] * 1000) for each in (self._prod, self._none)]
        return np.trunc((both[0] + both[1]) * ((100 + MARGIN_PERCENT) / 100))


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
        """Train both; at the end of a quarter hour judge what both said when it began."""
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


def forecasts_of(load: NodeLoad, prediction: str, begin: float) -> Forecasts:
    """All forecasts of a run; report number k is made from the samples before step k x REPORT_STEPS."""
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
    if prediction == NONE:
        return Forecasts(peaks, np.zeros((machines, reports)), accuracy)
    own = _pod_peaks(load, begin) if prediction == HISTOGRAM else None
    return Forecasts(peaks, _reclaimable(load, peaks, own, begin), accuracy)


PodPeaks = list[dict[int, int]]


def _pod_peaks(load: NodeLoad, begin: float) -> list[PodPeaks]:
    """By report and machine: p95 of each pod's model, by the pod's place on the machine."""
    machines, reports = load.minutes.shape
    starts: list[list[tuple[int, int, Floats]]] = [[] for _ in range(reports)]
    for machine, pods in enumerate(load.pods):
        for place, (pod, use) in enumerate(pods):
            starts[pod.first // REPORT_STEPS].append((machine, place, use))
    histograms = Histograms(CPU_BUCKETS, CPU_HALF_LIFE_SECONDS, EPSILON)
    there: list[tuple[int, int, int, Floats]] = []
    found: list[PodPeaks] = []
    for report in range(reports):
        if report:
            values = np.array([use[report - 1 - born] for _, _, born, use in there])
            histograms.add(np.arange(len(there)), values / 1000, 1.0, begin + report * REPORT_SECONDS)
            kept = [row for row, (_, _, born, use) in enumerate(there) if report - born < len(use)]
            if len(kept) < len(there):
                histograms.keep(kept)
                there = [there[row] for row in kept]
        here: PodPeaks = [{} for _ in range(machines)]
        if there:
            milli = np.trunc(histograms.percentiles([PEAK_PERCENTILE])[:, 0] * 1000).astype(int).tolist()
            for (machine, place, _, _), peak in zip(there, milli, strict=True):
                here[machine][place] = peak
        found.append(here)
        there += [(machine, place, report, use) for machine, place, use in starts[report]]
        histograms.widen(len(there))
    return found


def _reclaimable(load: NodeLoad, peaks: Floats, own: list[PodPeaks] | None, begin: float) -> Floats:
    """What of prod's requests will not be used, by metrics-ingest's predictors; `own` None: by the machine's forecast alone."""
    machines, reports = load.minutes.shape
    found = np.zeros((machines, reports))
    system = _system_peaks(load, begin) if own is not None else None
    for machine in range(machines):
        allocatable = Usage(cpu_milli=int(load.capacities[machine]))
        pods = [(place, pod) for place, (pod, _) in enumerate(load.pods[machine])]
        for report in range(1, reports):
            if not np.isfinite(peaks[machine, report]):
                continue
            step = report * REPORT_STEPS
            here = [(place, pod) for place, pod in pods if pod.first <= step < pod.end]
            requests = [
                PodRequest(
                    uid=str(place),
                    prod=True,
                    age_seconds=(step - pod.first) * STEP_SECONDS if own is not None else COLD_START_SECONDS + 1,
                    request=Usage(cpu_milli=pod.request_milli),
                )
                for place, pod in here
            ]
            milli = int(peaks[machine, report])
            if own is not None and system is not None:
                milli = int(milli * 100 / (100 + MARGIN_PERCENT)) + int(system[machine, report])
                known = {str(place): Usage(cpu_milli=peak) for place, peak in own[report][machine].items()}
            else:
                milli += int(load.system[machine])
                known = {str(place): Usage() for place, _ in here}
            prediction = predict(
                requests,
                known,
                {"services": Usage(cpu_milli=milli)},
                allocatable=allocatable,
                cold_start_seconds=COLD_START_SECONDS,
                margin_percent=MARGIN_PERCENT if own is not None else 0,
            )
            found[machine, report] = prediction.reclaimable.cpu_milli if prediction.reclaimable is not None else 0
    return found


def _system_peaks(load: NodeLoad, begin: float) -> Floats:
    """p95 of the system's model, by machine and report."""
    machines, reports = load.minutes.shape
    histograms = Histograms(CPU_BUCKETS, CPU_HALF_LIFE_SECONDS, EPSILON, machines)
    histograms.add(np.arange(machines), load.system / 1000, 1.0, begin)
    milli = np.trunc(histograms.percentiles([PEAK_PERCENTILE])[:, 0] * 1000)
    return np.repeat(milli[:, np.newaxis], reports, axis=1)
