"""Small pieces of the HTTP side: paths, tables, ages, followed logs, protobuf, discovery."""

from __future__ import annotations

import json

import pytest

from cotenant.api.ages import human_duration
from cotenant.kinds.registry import REGISTRY
from cotenant_gateway.http.app import discovery_document
from cotenant_gateway.http.logs import new_text
from cotenant_gateway.http.protobuf import ProtobufError, as_json
from cotenant_gateway.http.routing import target_of
from cotenant_gateway.http.tables import wants_table


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/api/v1/pods", ("pods", "", "", "")),
        ("/api/v1/namespaces/default/pods/web", ("pods", "default", "web", "")),
        ("/api/v1/namespaces/default/pods/web/eviction", ("pods", "default", "web", "eviction")),
        ("/api/v1/namespaces/team", ("namespaces", "", "team", "")),
        ("/api/v1/namespaces/team/status", ("namespaces", "", "team", "status")),
        ("/api/v1/nodes/n%2F1", ("nodes", "", "n/1", "")),
        ("/apis/policy/v1/namespaces/a/poddisruptionbudgets", ("poddisruptionbudgets", "a", "", "")),
    ],
)
def test_a_path_means_a_resource(path: str, meant: tuple[str, str, str, str]) -> None:
    target = target_of(path, REGISTRY)
    assert target is not None
    assert (target.kind.plural, target.namespace, target.name, target.subresource) == meant


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api",
        "/api/v1",
        "/api/v1/things",
        "/api/v2/pods",
        "/api/v1/pods/web",
        "/apis/policy/v2/poddisruptionbudgets",
        "/x/y/z",
    ],
)
def test_other_paths_mean_no_resource(path: str) -> None:
    assert target_of(path, REGISTRY) is None


def test_a_table_is_sent_only_where_it_is_preferred() -> None:
    kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
    assert wants_table(kubectl)
    assert not wants_table("application/json")
    assert not wants_table("application/json,application/json;as=Table;v=v1;g=meta.k8s.io")
    assert not wants_table("")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5, "5s"),
        (119, "119s"),
        (125, "2m5s"),
        (720, "12m"),
        (11_000, "3h3m"),
        (90_000, "25h"),
        (86_400 * 5, "5d"),
        (-9, "<invalid>"),
    ],
)
def test_ages_read_as_kubectls(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


def test_a_followed_log_prints_what_is_new_and_says_what_was_missed() -> None:
    assert new_text(b"a\n", b"a\nb\n") == b"b\n"
    assert new_text(b"a\n", b"a\n") == b""
    assert new_text(b"", b"a\n") == b"a\n"
    assert new_text(b"xxx\nyyy\n", b"yyy\nxxx\nyyy\nzzz\n") == b"zzz\n"
    assert new_text(b"one\n", b"two\n").endswith(b"left out]\ntwo\n")


def test_protobuf_of_a_known_kind_becomes_json_and_other_bytes_are_refused() -> None:
    namespace = b"k8s\x00\n\x0f\n\x02v1\x12\tNamespace\x12\n\n\x06\n\x04team\x12\x00"
    assert json.loads(as_json(namespace)) == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    for wrong in (b"{}", b"k8s\x00", b"k8s\x00\n\x0f\n\x02v1", b"k8s\x00\n\x0a\n\x02v1\x12\x04Node\x12\x00"):
        with pytest.raises(ProtobufError):
            as_json(wrong)


def test_discovery_lists_every_group_and_subresource() -> None:
    core = json.dumps(discovery_document("/api/v1", REGISTRY))
    assert '"pods/eviction"' in core
    groups = json.dumps(discovery_document("/apis", REGISTRY))
    for group in (
        "slo.koordinator.sh",
        "scheduling.koordinator.sh",
        "scheduling.sigs.k8s.io",
        "config.koordinator.sh",
        "policy",
    ):
        assert f'"{group}"' in groups
    assert discovery_document("/apis/nothing", REGISTRY) is None
