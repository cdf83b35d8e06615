"""What is remembered of shared structs: pods of one workload, and the readers of subjects of one family."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.api.objects.pod import PodSpec, decode_pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.model.by_identity import REMEMBERED, by_identity
from cotenant.model.quantities import QuantityError
from cotenant.simulation.routes import Routes
from tests.builders import pod_document


def document(name: str, cpu: Any = "300m") -> bytes:
    return msgspec.json.encode(pod_document(name, requests={"cpu": cpu}))


def test_replicas_share_the_view_of_their_spec_and_nothing_else() -> None:
    first, second = decode_pod(document("a")), decode_pod(document("b"))
    assert first.spec is second.spec
    assert (first.metadata.name, second.metadata.name) == ("a", "b")


def test_a_changed_sum_of_requests_changes_no_other_pods() -> None:
    mine = pod_requests(decode_pod(document("a")))
    mine["cpu"] += 1
    assert pod_requests(decode_pod(document("b"))) == {"cpu": 300}


def test_a_malformed_quantity_is_refused_each_time() -> None:
    for name in ("a", "b"):
        with pytest.raises(QuantityError):
            pod_requests(decode_pod(document(name, "much")))


def test_a_spec_that_is_none_is_named_by_its_path() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.spec\.containers"):
        decode_pod(b'{"spec": {"containers": 1}}')


def test_a_function_is_computed_once_for_a_struct_until_the_bound() -> None:
    computed: list[str] = []

    @by_identity
    def name_of(spec: PodSpec) -> str:
        computed.append(spec.node_name)
        return spec.node_name

    specs = [PodSpec(node_name=f"n{index}") for index in range(REMEMBERED + 1)]
    assert [name_of(spec) for spec in specs[:2] * 2] == ["n0", "n1", "n0", "n1"]
    assert computed == ["n0", "n1"]
    assert [name_of(spec) for spec in specs] == [spec.node_name for spec in specs]
    assert name_of(specs[0]) == "n0"
    assert computed.count("n0") == 2


def test_readers_of_one_family_are_told_from_those_of_a_named_entity() -> None:
    routes: Routes[str] = Routes()
    routes.add("node.*.run.*.*", 0, "all")
    routes.add("node.n1.>", 1, "n1")
    routes.add("node.>", 2, "below")
    assert routes.readers("node.n1.run.default.p") == ("all", "n1", "below")
    assert routes.readers("node.n2.run.default.p") == ("all", "below")
    assert routes.readers("node.n3.run.default.q") == ("all", "below")
    assert routes.readers("node.n1.slo") == ("n1", "below")
    assert routes.readers("node.n2.run.default.p.more") == ("below",)
    assert routes.readers("node") == ()
    routes.remove(2)
    routes.add("node.n2.run.default.q", 3, "one")
    assert routes.readers("node.n2.run.default.q") == ("all", "one")
    assert routes.readers("node.n2.run.default.p") == ("all",)
