"""A pod is named in a load delta only if it adds more than zero of some resource to it (scheduling 2.4)."""

from __future__ import annotations

from cotenant_scheduler.state.load.load_estimate import AssignedPod, NodeReport, ReportedPod, estimate_node

MEASURED = ("default", "measured")
NEW = ("default", "new")


def test_a_pod_whose_use_reaches_its_estimate_is_named_in_no_delta() -> None:
    report = NodeReport(update_us=100, interval_us=60, pods={MEASURED: ReportedPod((900, 50), "koord-prod")})
    pods = [(MEASURED, AssignedPod((900, 50), True, 90)), (NEW, AssignedPod((100, 10), True, 90))]
    sums = estimate_node(report, pods, 2)
    assert sums.node_delta_pods == sums.prod_delta_pods == [NEW]
    assert sums.node_delta == sums.prod_delta == [100, 10]


def test_a_pod_that_exceeds_its_report_in_one_resource_is_named() -> None:
    report = NodeReport(update_us=100, interval_us=60, pods={MEASURED: ReportedPod((900, 40), "koord-prod")})
    sums = estimate_node(report, [(MEASURED, AssignedPod((900, 50), True, 90))], 2)
    assert sums.node_delta_pods == sums.prod_delta_pods == [MEASURED]
    assert sums.node_delta == sums.prod_delta == [0, 10]
