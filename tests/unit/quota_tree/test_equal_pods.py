"""Equal pods that are admitted at once, as many as one by one."""

import pytest

from cotenant.domain.quota.admission import QuotaLevel
from cotenant.domain.quota.equal_pods import EqualPods

CHAIN = [
    QuotaLevel(
        name="leaf", max={"cpu": 9000}, min={"cpu": 2500}, runtime={"cpu": 7000}, non_preemptible_used={"cpu": 400}
    ),
    QuotaLevel(name="org", max={"cpu": 9000}, runtime={"cpu": 6000}, used={"cpu": 800}),
]


def pods(*, check_ancestors: bool) -> EqualPods:
    return EqualPods({"cpu": 1000}, runtime_limits=True, check_ancestors=check_ancestors)


@pytest.mark.parametrize(
    ("preemptible", "check_ancestors", "expected"), [(True, False, 7), (True, True, 5), (False, False, 2), (False, True, 2)]
)
def test_as_many_are_admitted_at_once_as_one_after_the_other(
    preemptible: bool, check_ancestors: bool, expected: int
) -> None:
    single, together = pods(check_ancestors=check_ancestors), pods(check_ancestors=check_ancestors)
    one_by_one = sum(single.admit(CHAIN, preemptible=preemptible) for _ in range(20))
    assert one_by_one == expected
    assert together.admit_several(CHAIN, 20, preemptible=preemptible) == expected
    assert together.admit_several(CHAIN, 20, preemptible=preemptible) == 0, "those admitted count"


def test_no_more_are_admitted_than_asked_for_and_the_rest_later() -> None:
    asked = pods(check_ancestors=True)
    assert [asked.admit_several(CHAIN, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert asked.admit_several((), 9) == 9, "no quota limits them"
