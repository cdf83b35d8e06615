"""The anomaly detector of one node: whether a hot node has been hot for long enough.

In: the detector's counters (fields of an event), one mark per cycle, the time. Out: the counters after the mark.

    current(now): if ANOMALY and (now > expires_at or normal streak > M) -> OK
    mark normal:   normal streak + 1, abnormal streak = 0; if ANOMALY and normal streak > M -> OK
    mark abnormal: abnormal streak + 1, normal streak = 0; if OK and abnormal streak > N -> ANOMALY
    a change of state clears all counters; ANOMALY expires one timeout after it began, and further marks do not extend it

N and M must be exceeded: the (N+1)th consecutive detection starts the anomaly. N = 1 (or no condition) is special: the first
detection counts and there is no detector. A timeout of 0 or less means 60 s.

Source: koord-descheduler anomaly detection (BasicDetector) as LowNodeLoad uses it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from cotenant.events.migrations import AnomalyStreak, DetectorState
from cotenant_descheduler_arbiter.config.policy import DEFAULT_ANOMALY_TIMEOUT, AnomalyCondition


def _enter(detector: AnomalyStreak, state: DetectorState, condition: AnomalyCondition, now: datetime) -> AnomalyStreak:
    if state is detector.state:
        return detector
    if state is DetectorState.OK:
        return AnomalyStreak()
    timeout = condition.timeout if condition.timeout > timedelta(0) else DEFAULT_ANOMALY_TIMEOUT
    return AnomalyStreak(state=state, expires_at=now + timeout)


def current(detector: AnomalyStreak, condition: AnomalyCondition, now: datetime) -> AnomalyStreak:
    """Return the detector's state at `now`: an anomaly that ended or expired is OK with cleared counters."""
    if detector.state is DetectorState.ANOMALY and (
        (detector.expires_at is not None and now > detector.expires_at)
        or detector.normal_streak > condition.consecutive_normalities
    ):
        return AnomalyStreak()
    return detector


def mark(detector: AnomalyStreak, condition: AnomalyCondition, now: datetime, *, normal: bool) -> AnomalyStreak:
    """Return the detector after one observation."""
    before = current(detector, condition, now)
    if normal:
        marked = msgspec.structs.replace(
            before,
            total=before.total + 1,
            normal=before.normal + 1,
            normal_streak=before.normal_streak + 1,
            abnormal_streak=0,
        )
        if before.state is DetectorState.ANOMALY and marked.normal_streak > condition.consecutive_normalities:
            marked = _enter(marked, DetectorState.OK, condition, now)
    else:
        marked = msgspec.structs.replace(
            before,
            total=before.total + 1,
            abnormal=before.abnormal + 1,
            abnormal_streak=before.abnormal_streak + 1,
            normal_streak=0,
        )
        if before.state is DetectorState.OK and marked.abnormal_streak > condition.consecutive_abnormalities:
            marked = _enter(marked, DetectorState.ANOMALY, condition, now)
    return current(marked, condition, now)


def reset(detector: AnomalyStreak) -> AnomalyStreak:
    """Return the detector in state OK; if it is OK already its counters are unchanged."""
    return detector if detector.state is DetectorState.OK else AnomalyStreak()
