"""An over-committed node: what prod pods do not need is at most what their peaks leave of the node's allocatable."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cotenant.events.node.metrics import Usage
from cotenant_metrics_ingest.prediction.predictors import PodRequest, predict

MARGIN_PERCENT = 10
amounts = st.integers(0, 2**44)
usages = st.builds(Usage, cpu_milli=amounts, memory_bytes=amounts)


@given(st.lists(st.tuples(usages, usages), min_size=1, max_size=5), usages, usages)
def test_no_predictor_gives_more_than_the_peaks_leave_of_the_node(
    pods: list[tuple[Usage, Usage]], system: Usage, allocatable: Usage
) -> None:
    found = predict(
        [PodRequest(uid=str(uid), prod=True, age_seconds=1e6, request=request) for uid, (request, _) in enumerate(pods)],
        {str(uid): peak for uid, (_, peak) in enumerate(pods)},
        {"system": system},
        allocatable=allocatable,
        cold_start_seconds=3600,
        margin_percent=MARGIN_PERCENT,
    )
    ratio = (100 + MARGIN_PERCENT) / 100
    for terms, peaks in ((found.pod, [peak for _, peak in pods]), (found.priority, [system])):
        assert terms is not None
        for resource in ("cpu_milli", "memory_bytes"):
            left = getattr(allocatable, resource) - sum(int(getattr(peak, resource) * ratio) for peak in peaks)
            assert 0 <= getattr(terms.reclaimable, resource) <= max(left, 0)
