"""The dominant share of a tenant, in figures, and the place that it gives a job."""

from __future__ import annotations

import pytest

from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.quota.membership import Membership
from cotenant.domain.quota.trees.demands import ChargeClass
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant_scheduler.cycle.ordering.shares import Shares
from cotenant_scheduler.state.pod_records import Charge
from tests.unit.scheduler.plugins.test_quota_admission import shape

TEAM = Membership("team", "")
MOST = 1 << 40


def ledger(**most: int) -> QuotaLedger:
    """Quota team may use so much now; the cluster, and the quota above, have ten times that of CPU and memory only."""
    found = QuotaLedger()
    above = {name: 10 * amount for name, amount in most.items()}
    found.declare(
        {
            "all": ElasticQuotaView(name="all", parent="root", max=above, shared_weight=above),
            "team": ElasticQuotaView(name="team", parent="all", max=most, shared_weight=most),
        }
    )
    found.demands.offer({name: amount for name, amount in above.items() if name in ("cpu", "memory")})
    asked = tuple(sorted((name, 2 * amount) for name, amount in most.items()))
    found.demands.count(ChargeClass("default", "team", asked, True), 1, 0)
    return found


def share(known: QuotaLedger, *, times: int = 0, **used: int) -> int:
    if used:
        known.charge(TEAM, used, preemptible=True)
    return Shares(known).share(TEAM, Charge(shape("1"), TEAM, True), times)


def test_the_share_is_the_highest_part_that_is_used_of_any_resource() -> None:
    known = ledger(cpu=8000, memory=400)
    assert share(known) == 0
    assert share(known, cpu=2000, memory=50) == 250_000
    assert share(known, memory=150) == 500_000
    assert share(ledger(cpu=3000), cpu=1000) == 333_333


def test_pods_that_come_first_count_with_what_they_request() -> None:
    known = ledger(cpu=8000, memory=400)
    assert share(known, times=2, cpu=2000, memory=50) == 500_000
    assert share(known, times=0) == 250_000
    # Nothing of memory is requested by a pod of one CPU.
    assert share(ledger(cpu=8_000_000, memory=400), times=2, memory=50) == 125_000
    assert Shares(known).share(TEAM, Charge(shape("1"), TEAM, True)) == 250_000
    assert Shares(known).share(TEAM, None, 2) == 250_000


def test_a_tenant_that_uses_what_it_should_have_nothing_of_comes_last() -> None:
    known = ledger(cpu=8000, gpu=1)
    assert share(known, cpu=8000) == 1_000_000, "nothing is used of what it has nothing of"
    assert share(known, gpu=1) == MOST
    assert share(ledger(cpu=1), cpu=1) == 1_000_000
    assert share(ledger(cpu=1), cpu=1 << 40) == MOST


def test_a_tenant_without_a_quota_has_no_share() -> None:
    known = ledger(cpu=8000)
    assert Shares(known).share(None) == 0
    assert Shares(known).share(Membership("other", "")) == 0


@pytest.mark.parametrize("priority", [-(1 << 31), -1, 0, (1 << 31) - 1])
def test_the_share_counts_before_the_priority_and_all_else_behind_it(priority: int) -> None:
    known = ledger(cpu=1_000_000)
    shares, charge = Shares(known), Charge(shape("1m"), TEAM, True)
    order = (-priority, "created", "namespace", "name")
    assert shares.place(order, charge) == order, "without a share it is the order itself"
    least = (1 << 31, "", "", "")
    assert shares.place(least, charge) < shares.place((1 - (1 << 31), "", "", ""), charge, 1)
    assert shares.place(order, charge, 1)[1:] == order[1:]
    assert shares.place((order[0], "a", "b", "c"), charge, 1) < shares.place((order[0] + 1, "", "", ""), charge, 1)
