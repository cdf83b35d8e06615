"""What the simulator found in quotas, each with the seed that showed it (`cotenant simulate --chaos --seed N --for 10m`)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.quota.membership import Membership
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.events.envelope import encode_payload
from tests.unit.quota_tree.builders_quota_tree import QuotaLog


def test_seed_1_equal_sums_give_equal_bytes_in_whatever_order_pods_came() -> None:
    texts = []
    for order in (("cpu-pod", "memory-pod"), ("memory-pod", "cpu-pod")):
        log = QuotaLog()
        log.node("n1", cpu="10", memory="10Gi")
        log.quota("a", minimum={"cpu": "1"}, maximum={"cpu": "10", "memory": "10Gi"})
        for name in order:
            requests: dict[str, Any] = {"cpu": "1"} if name == "cpu-pod" else {"memory": "1Gi"}
            log.pod(name, quota="a", **requests)
        log.decide()
        published = log.published("a")
        assert published is not None
        texts.append(encode_payload(published))
    assert texts[0] == texts[1]


def test_seed_2_a_ledger_with_every_charge_removed_equals_an_empty_one() -> None:
    member = Membership("a", "")
    fresh, used = QuotaLedger(), QuotaLedger()
    for ledger in (fresh, used):
        ledger.declare({"a": ElasticQuotaView(name="a", max={"cpu": 1000})})
        assert ledger.used(member) == {}
    used.charge(member, {"cpu": 500}, preemptible=True)
    used.give_back(member, {"cpu": 500}, preemptible=True)
    assert used.chain(member) == fresh.chain(member)


def test_seed_5_an_event_delivered_while_a_decision_was_stored_is_a_cause_of_the_next() -> None:
    log = QuotaLog()
    log.node("n1", cpu="10")
    log.quota("a", minimum={"cpu": "1"}, maximum={"cpu": "10"})
    decided = log.core.decide(log.now)
    # The pod's object is on the log before the decision that did not know it.
    pod = log.pod("p", quota="a", cpu="3")
    for event in decided:
        log.publish(event.subject, event.data, causes=event.causes)
    later = {event.subject: event for event in log.core.decide(log.now + timedelta(seconds=2))}
    assert pod in later["quotas._.a"].causes
