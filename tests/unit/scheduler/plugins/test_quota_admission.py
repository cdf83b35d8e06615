"""How many equal pods a quota takes at once, and the reason that is given for one that it does not take."""

from __future__ import annotations

import pytest

from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.quota.membership import Membership
from cotenant.domain.quota.trees.demands import ChargeClass
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant_scheduler.plugins.quota import QuotaAdmission
from cotenant_scheduler.state.pod_records import Charge
from cotenant_scheduler.state.reading.shapes import Shape
from tests.unit.scheduler.asking import Asking

TEAM = Membership("team", "")


def shape(cpu: str) -> Shape:
    asking = Asking()
    asking.ask_for("p", requests={"cpu": cpu})
    asking.current()
    return asking.shape("p")


def admission(cpu_milli: int) -> QuotaAdmission:
    """A quota that may use so much now."""
    ledger = QuotaLedger()
    room = {"cpu": cpu_milli}
    ledger.declare({"team": ElasticQuotaView(name="team", max=room, shared_weight=room)})
    ledger.demands.offer({"cpu": 1_000_000})
    ledger.demands.count(ChargeClass("default", "team", (("cpu", 1_000_000),), True), 1, 0)
    return QuotaAdmission(ledger, runtime_limits=True, check_ancestors=True)


@pytest.mark.parametrize(("fit", "most"), [(1, 2), (1, 9), (2, 3), (2, 9), (3, 4), (3, 9), (5, 9), (8, 9), (9, 9), (9, 5)])
def test_as_many_pods_are_taken_as_fit(fit: int, most: int) -> None:
    for cpu_milli in (fit * 2_000, fit * 2_000 + 1_999):
        charge = Charge(shape("2"), TEAM, True)
        run = admission(cpu_milli).one_after_the_other(charge.shape)
        assert [run.admits(charge) for _ in range(most)] == [number < fit for number in range(most)]


def test_a_refusal_is_about_the_pod_and_no_node() -> None:
    assert admission(2_000).check(shape("2"), TEAM, preemptible=True) is None
    waiting = admission(1_999).check(shape("2"), TEAM, preemptible=True)
    assert waiting is not None
    [reason] = waiting.reasons
    assert (reason.code, reason.count, reason.resource) == ("quota", 0, "cpu")
    assert reason.detail == "quota team: cpu 2 needed, runtime is 1999m"
    assert waiting.wakes_on == (
        "quotas._.team",
        "node.*.placement.>",
        "node.*.run.>",
        "objects.scheduling%2Esigs%2Ek8s%2Eio.elasticquotas.>",
    )
