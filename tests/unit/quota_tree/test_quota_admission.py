"""Admission, membership, the ledger, and the validation of quota objects."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cotenant.api.validation.fields import FieldError
from cotenant.domain.quota.admission import QuotaLevel, admit
from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.quota.membership import NO_QUOTAS, Membership, QuotaIdentity, QuotaIndex
from cotenant.domain.quota.names import ROOT
from cotenant.domain.quota.validation import validate_quota, validate_quota_deletion
from cotenant.domain.quota.view import ElasticQuotaView, decode_quota
from tests.unit.quota_tree.builders_quota_tree import PREFIX, quota_document

GIB = 2**30


def view(name: str, **wanted: object) -> ElasticQuotaView:
    return decode_quota(msgspec.json.encode(quota_document(name, **wanted)))  # type: ignore[arg-type]


def fields(errors: list[FieldError]) -> list[str]:
    return [error.field for error in errors]


def test_a_refusal_names_quota_dimension_need_and_limit() -> None:
    quota = QuotaLevel(name="a", max={"cpu": 9000, "memory": GIB}, runtime={"cpu": 4000, "memory": GIB}, used={"cpu": 3500})
    refusal = admit({"cpu": 1000, "memory": 1}, [quota])
    assert refusal is not None
    assert (refusal.quota, refusal.ancestor, refusal.dimension) == ("a", "", "cpu")
    assert (refusal.need, refusal.limit, refusal.limited_by) == (4500, 4000, "runtime")
    assert "used: cpu:3500m" in refusal.message


def test_a_quota_does_not_limit_a_resource_that_it_does_not_list() -> None:
    quota = QuotaLevel(name="a", max={"cpu": 9000}, runtime={"cpu": 4000})
    assert admit({"cpu": 4000, "nvidia.com/gpu": 8}, [quota]) is None


def test_overuse_in_a_resource_that_the_pod_does_not_request_refuses_it() -> None:
    quota = QuotaLevel(name="a", max={"cpu": 9000, "memory": 9}, runtime={"cpu": 9000, "memory": 5}, used={"memory": 6})
    refusal = admit({"cpu": 1}, [quota])
    assert refusal is not None
    assert refusal.dimension == "memory"


def test_a_non_preemptible_pod_must_fit_min() -> None:
    quota = QuotaLevel(name="a", max={"cpu": 9000}, min={"cpu": 2000}, runtime={"cpu": 9000})
    assert admit({"cpu": 3000}, [quota]) is None
    refusal = admit({"cpu": 3000}, [quota], preemptible=False)
    assert refusal is not None
    assert refusal.limited_by == "min"


def test_an_ancestor_that_is_full_refuses_and_is_named() -> None:
    chain = [
        QuotaLevel(name="leaf", max={"cpu": 9000}, runtime={"cpu": 9000}),
        QuotaLevel(name="team", max={"cpu": 9000}, runtime={"cpu": 9000}),
        QuotaLevel(name="org", max={"cpu": 9000}, runtime={"cpu": 4000}, used={"cpu": 3000}),
    ]
    assert admit({"cpu": 2000}, chain) is None
    refusal = admit({"cpu": 2000}, chain, check_ancestors=True)
    assert refusal is not None
    assert (refusal.quota, refusal.ancestor, refusal.need, refusal.limit) == ("leaf", "org", 5000, 4000)
    assert "quotaNameTopo: [org team leaf]" in refusal.message


def test_a_pod_belongs_to_its_label_then_its_namespace_then_the_list_then_the_default() -> None:
    index = QuotaIndex(
        [
            QuotaIdentity("web", "web"),
            QuotaIdentity("b", "x", "tree", ("shop", "mail")),
            QuotaIdentity("a", "x", "", ("shop",)),
        ]
    )
    label = {PREFIX + "name": "b"}
    assert index.associate("web", label) == Membership("b", "tree")
    assert index.associate("web", {}) == Membership("web")
    assert index.associate("shop", {}) == Membership("a")
    assert index.associate("mail", {}) == Membership("b", "tree")
    assert index.associate("other", {}) == Membership("koordinator-default-quota")
    assert index.associate("web", {PREFIX + "name": "nobody"}) == Membership("koordinator-default-quota")


spaces = st.sampled_from(["web", "shop", "mail"])
identities = st.lists(
    st.builds(
        QuotaIdentity,
        st.sampled_from(["web", "a", "b", "koordinator-default-quota"]),
        spaces,
        st.sampled_from(["", "t"]),
        st.lists(spaces, max_size=2).map(tuple),
    ),
    max_size=4,
)
indexes = st.one_of(st.just(NO_QUOTAS), st.builds(QuotaIndex, identities, st.booleans()))


@given(indexes, indexes)
def test_pods_leave_only_the_quotas_that_are_named_when_others_replace_them(before: QuotaIndex, after: QuotaIndex) -> None:
    left = before.left_for(after)
    for space in ("web", "shop", "mail", "else"):
        for label in ("", "web", "a", "b", "nobody"):
            if before.member(space, label) != after.member(space, label):
                assert before.member(space, label) in left


def test_quotas_that_change_nothing_of_membership_are_left_by_nobody() -> None:
    quotas = [QuotaIdentity("a", "x", "", ("shop",)), QuotaIdentity("b", "x", "t")]
    assert QuotaIndex(quotas).left_for(QuotaIndex(quotas)) == set()
    more = QuotaIndex([*quotas, QuotaIdentity("c", "x")])
    assert QuotaIndex(quotas).left_for(more) == {Membership("koordinator-default-quota")}
    assert more.left_for(QuotaIndex(quotas)) == {Membership("c")}


pods = st.tuples(st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(0, 2**60)), st.booleans())


def ledger_of_three() -> QuotaLedger:
    ledger = QuotaLedger()
    ledger.declare(three())
    return ledger


def three() -> dict[str, ElasticQuotaView]:
    parents = {"org": ROOT, "team": "org", "leaf": "team"}
    return {name: ElasticQuotaView(name=name, parent=parent, max={"cpu": 9000}) for name, parent in parents.items()}


def test_the_ledger_charges_a_pod_to_its_quota_and_all_ancestors() -> None:
    ledger = ledger_of_three()
    ledger.charge(Membership("leaf"), {"cpu": 700, "memory": 5}, preemptible=False)
    assert [(level.name, level.used) for level in ledger.chain(Membership("leaf"))] == [
        ("leaf", {"cpu": 700}),
        ("team", {"cpu": 700}),
        ("org", {"cpu": 700}),
    ]
    ledger.charge(Membership("leaf"), {"cpu": 300}, preemptible=True)
    assert ledger.used(Membership("org")) == {"cpu": 1000}
    assert ledger.chain(Membership("org"))[0].non_preemptible_used == {"cpu": 700}


def test_the_ledger_moves_usage_with_a_quota() -> None:
    ledger = ledger_of_three()
    ledger.charge(Membership("leaf"), {"cpu": 700}, preemptible=True)
    assert ledger.used(Membership("team")) == {"cpu": 700}
    ledger.declare({**three(), "leaf": ElasticQuotaView(name="leaf", parent="org", max={"cpu": 1})})
    assert ledger.used(Membership("team")) == {}
    assert ledger.used(Membership("org")) == {"cpu": 700}


def test_the_ledger_keeps_what_was_charged_before_its_quota_was_known() -> None:
    ledger = QuotaLedger()
    ledger.charge(Membership("leaf"), {"cpu": 700}, preemptible=True)
    ledger.declare({"leaf": ElasticQuotaView(name="leaf", max={"cpu": 1000})})
    assert ledger.used(Membership("leaf")) == {"cpu": 700}
    ledger.give_back(Membership("leaf"), {"cpu": 700}, preemptible=True)
    assert ledger.used(Membership("leaf")).get("cpu", 0) == 0


def test_a_min_above_max_is_refused_in_its_field() -> None:
    errors = validate_quota(view("a", minimum={"cpu": "12"}, maximum={"cpu": "10"}), [])
    assert fields(errors) == ["spec.min[cpu]"]
    assert "min 12 > max 10" in errors[0].message


def test_a_min_that_max_does_not_list_and_a_negative_max_are_refused() -> None:
    assert fields(validate_quota(view("a", minimum={"cpu": "1"}, maximum={}), [])) == ["spec.min[cpu]"]
    assert fields(validate_quota(view("a", maximum={"cpu": "-1"}), [])) == ["spec.max[cpu]"]


def test_a_min_above_the_parents_is_refused() -> None:
    parent = view("team", is_parent=True, minimum={"cpu": "4"}, maximum={"cpu": "10"})
    brother = view("dev", parent="team", minimum={"cpu": "3"}, maximum={"cpu": "10"})
    new = view("ops", parent="team", minimum={"cpu": "2"}, maximum={"cpu": "10"})
    errors = validate_quota(new, [parent, brother])
    assert fields(errors) == ["spec.min[cpu]"]
    assert "cpu 5 > 4" in errors[0].message
    assert validate_quota(view("ops", parent="team", minimum={"cpu": "1"}, maximum={"cpu": "10"}), [parent, brother]) == []


def test_a_parent_min_below_its_childrens_is_refused() -> None:
    children = [view(name, parent="team", minimum={"cpu": "3"}, maximum={"cpu": "10"}) for name in ("x", "y")]
    old = view("team", is_parent=True, minimum={"cpu": "6"}, maximum={"cpu": "10"})
    new = view("team", is_parent=True, minimum={"cpu": "5"}, maximum={"cpu": "10"})
    assert "all children's MinQuota" in validate_quota(new, [*children, old])[0].message


def test_a_parent_must_exist_be_a_parent_and_not_lie_below() -> None:
    leaf = view("leaf", maximum={"cpu": "1"})
    label = f"metadata.labels[{PREFIX}parent]"
    assert fields(validate_quota(view("a", parent="nobody", maximum={"cpu": "1"}), [])) == [label]
    assert fields(validate_quota(view("a", parent="leaf", maximum={"cpu": "1"}), [leaf])) == [label]
    upper = view("upper", parent="lower", is_parent=True, maximum={"cpu": "1"})
    lower_as_it_was = view("lower", is_parent=True, maximum={"cpu": "1"})
    lower = view("lower", parent="upper", is_parent=True, maximum={"cpu": "1"})
    assert fields(validate_quota(lower, [upper, lower_as_it_was])) == [label]


def test_one_name_in_two_namespaces_is_refused() -> None:
    there = view("a", namespace="x", maximum={"cpu": "1"})
    assert fields(validate_quota(view("a", namespace="y", maximum={"cpu": "1"}), [there])) == ["metadata.name"]


def test_max_keys_of_parent_and_child_must_be_the_same() -> None:
    parent = view("team", is_parent=True, maximum={"cpu": "10", "memory": "1Gi"})
    assert fields(validate_quota(view("a", parent="team", maximum={"cpu": "1"}), [parent])) == ["spec.max"]


def test_a_quota_with_children_or_pods_may_not_be_deleted() -> None:
    team = view("team", is_parent=True)
    assert "1 child quotas" in validate_quota_deletion(team, [view("a", parent="team")], [])
    assert validate_quota_deletion(team, [], ["a", "b", "c"]).endswith("3 child pods: a, b, ...")
    assert validate_quota_deletion(team, [team], []) == ""


def test_a_malformed_weight_counts_as_missing_in_the_view_and_is_refused_at_admission() -> None:
    bad = view("a", maximum={"cpu": "3"}, annotations={PREFIX + "shared-weight": "{"})
    assert bad.shared_weight == {"cpu": 3000}
    assert len(bad.faults) == 1
    assert fields(validate_quota(bad, [])) == [f"metadata.annotations[{PREFIX}shared-weight]"]
