"""Where ResourceManagers are by Hadoop's configuration files, and which client a cluster gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.log.memory import MemoryLog
from cotenant_verification.harness.yarn import ResourceManager
from cotenant_yarn_copilot.capacity import YarnResource
from cotenant_yarn_copilot.cluster_clients import ClusterClients
from cotenant_yarn_copilot.config import CopilotConfig
from cotenant_yarn_copilot.hadoop_conf import MAX_FILE_BYTES, HadoopConfigError, addresses, clusters_of_folder
from cotenant_yarn_copilot.node_id import DEFAULT_CLUSTER
from cotenant_yarn_copilot.rm_client import ResourceManagerError
from cotenant_yarn_copilot.syncing import Syncing
from tests.unit.yarn_copilot.builders_yarn_copilot import GIB, NOON, Bench, manager

RM = "yarn.resourcemanager"


def write_site(folder: Path, properties: dict[str, str], *, cluster: str = "", file: str = "yarn-site.xml") -> None:
    entries = "".join(f"<property><name>{name}</name><value>{text}</value></property>" for name, text in properties.items())
    text = f"<?xml version='1.0'?><configuration>{entries}</configuration>"
    (folder / (f"{cluster}.{file}" if cluster else file)).write_text(text)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({f"{RM}.webapp.address": "rm.example:18088", f"{RM}.hostname": "other"}, ("http://rm.example:18088",)),
        ({f"{RM}.hostname": "rm.example"}, ("http://rm.example:8088",)),
        ({f"{RM}.address": "rm.example:8032"}, ("http://rm.example:8088",)),
        ({f"{RM}.hostname": "rm", f"{RM}.webapp.address": "${yarn.resourcemanager.hostname}:80"}, ("http://rm:80",)),
        ({f"{RM}.hostname": "rm", "yarn.http.policy": "HTTPS_ONLY"}, ("https://rm:8090",)),
        (
            {
                f"{RM}.ha.enabled": "true",
                f"{RM}.ha.rm-ids": "rm2, rm1",
                f"{RM}.hostname.rm1": "one",
                f"{RM}.webapp.address.rm2": "two:8088",
                f"{RM}.hostname": "ignored",
            },
            ("http://two:8088", "http://one:8088"),
        ),
    ],
)
def test_addresses_follow_from_hadoops_properties(
    properties: dict[str, str], expected: tuple[str, ...], tmp_path: Path
) -> None:
    write_site(tmp_path, properties)
    assert addresses(tmp_path, DEFAULT_CLUSTER) == expected


def test_a_site_file_overrides_the_defaults_of_its_own_cluster_alone(tmp_path: Path) -> None:
    write_site(tmp_path, {f"{RM}.webapp.address": "${yarn.resourcemanager.hostname}:1"}, cluster="a", file="yarn-default.xml")
    for cluster in ("a", "b"):
        write_site(tmp_path, {f"{RM}.hostname": f"rm-{cluster}"}, cluster=cluster)
    assert addresses(tmp_path, "a") == ("http://rm-a:1",)
    assert addresses(tmp_path, "b") == ("http://rm-b:8088",)


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({}, "neither yarn.resourcemanager.webapp.address nor yarn.resourcemanager.hostname is set"),
        ({f"{RM}.ha.enabled": "true"}, "ha.rm-ids is empty"),
        ({f"{RM}.ha.enabled": "true", f"{RM}.ha.rm-ids": "rm1", f"{RM}.hostname": "rm"}, "hostname.rm1 is set"),
        ({f"{RM}.hostname": "${nowhere}"}, "expected host:port"),
        ({f"{RM}.webapp.address": "http://rm:8088"}, "expected host:port"),
        ({f"{RM}.hostname": "${yarn.resourcemanager.hostname}x"}, "hostname refers to itself"),
        ({f"{RM}.hostname": "${a}", "a": "${a}${a}${a}${a}"}, "hostname is longer than 4096 characters"),
    ],
)
def test_a_file_without_a_usable_address_is_an_error_that_names_it(
    properties: dict[str, str], why: str, tmp_path: Path
) -> None:
    write_site(tmp_path, properties)
    with pytest.raises(HadoopConfigError, match=r"yarn-site\.xml: ") as raised:
        addresses(tmp_path, DEFAULT_CLUSTER)
    assert why in str(raised.value)


@pytest.mark.parametrize("cluster", ["../secret", "a/b", "", ".", "x" * 200, "a b"])
def test_an_id_that_is_no_file_name_is_refused(cluster: str, tmp_path: Path) -> None:
    with pytest.raises(HadoopConfigError, match="cannot be a cluster's id"):
        addresses(tmp_path, cluster)


def test_files_that_cannot_be_read_are_errors(tmp_path: Path) -> None:
    site = tmp_path / "yarn-site.xml"
    with pytest.raises(HadoopConfigError, match="does not exist"):
        addresses(tmp_path, DEFAULT_CLUSTER)
    site.write_text("<configuration>")
    with pytest.raises(HadoopConfigError, match="is not XML"):
        addresses(tmp_path, DEFAULT_CLUSTER)
    site.write_bytes(b" " * (MAX_FILE_BYTES + 1))
    with pytest.raises(HadoopConfigError, match="is larger than"):
        addresses(tmp_path, DEFAULT_CLUSTER)
    site.unlink()
    site.mkdir()
    with pytest.raises(HadoopConfigError, match="cannot be read"):
        addresses(tmp_path, DEFAULT_CLUSTER)
    with pytest.raises(HadoopConfigError, match="is not a folder"):
        clusters_of_folder(tmp_path / "none")


def test_every_cluster_with_a_site_file_is_configured_and_given_addresses_count_first(tmp_path: Path) -> None:
    for cluster in ("", "a", "b"):
        write_site(tmp_path, {f"{RM}.hostname": f"rm{cluster}"}, cluster=cluster)
    (tmp_path / "my-yarn-site.xml").write_text("no cluster's")
    config = CopilotConfig(clusters={"b": "http://given:1"}, hadoop_conf_dir=str(tmp_path))
    assert config.urls() == {
        "b": ("http://given:1",),
        DEFAULT_CLUSTER: ("http://rm:8088",),
        "a": ("http://rma:8088",),
    }
    assert CopilotConfig(resource_manager="http://one:1").urls() == {DEFAULT_CLUSTER: ("http://one:1",)}


def test_a_cluster_gets_one_client_when_it_is_first_needed_and_the_empty_id_is_the_default_cluster() -> None:
    made: list[str] = []

    def make(cluster: str) -> str:
        made.append(cluster)
        if cluster == "broken" and made.count("broken") < 2:
            raise ResourceManagerError("not yet")
        return f"client of {cluster}"

    clients = ClusterClients({"a": "configured"}, make)
    assert (clients.of("a"), clients.of(""), clients.of(DEFAULT_CLUSTER)) == (
        "configured",
        f"client of {DEFAULT_CLUSTER}",
        f"client of {DEFAULT_CLUSTER}",
    )
    with pytest.raises(ResourceManagerError, match="not yet"):
        clients.of("broken")
    assert clients.of("broken") == clients.of("broken") == "client of broken"
    assert made == [DEFAULT_CLUSTER, "broken", "broken"]
    with pytest.raises(ResourceManagerError, match="no ResourceManager is configured for cluster b"):
        ClusterClients({"a": "configured"}).of("b")


def test_clusters_are_those_of_the_node_manager_pods_on_existing_nodes() -> None:
    bench = Bench()
    for name, cluster in (("a", "east"), ("b", ""), ("gone", "west")):
        bench.node(name)
        bench.place_node_manager(name, f"{name}:8041", cluster=cluster)
    bench.place("a", "job")
    bench.delete_node("gone")
    assert bench.copilot.clusters() == {"east", DEFAULT_CLUSTER}


def test_an_empty_cluster_id_of_a_node_manager_pod_means_the_default_cluster() -> None:
    bench = Bench()
    bench.node("a")
    bench.has_batch("a", 2000, GIB)
    annotations = {"yarn.hadoop.apache.org/node-id": "a:8041", "yarn.hadoop.apache.org/cluster-id": ""}
    bench.place("a", "nm", labels={"app.kubernetes.io/component": "node-manager"}, annotations=annotations)
    assert bench.settings(manager("a:8041")) == [("a:8041", 2, 1024)]


async def test_a_cluster_that_a_node_manager_names_is_asked_once_it_is_configured() -> None:
    east = ResourceManager()
    east.register("a", YarnResource(1, 1024))
    configured: set[str] = set()

    def make(cluster: str) -> ResourceManager:
        if cluster not in configured:
            raise ResourceManagerError(f"{cluster} is not configured")
        return east

    clients = ClusterClients({DEFAULT_CLUSTER: ResourceManager()}, make)
    syncing = Syncing(MemoryLog(), clients, CopilotConfig(), now=lambda: NOON)
    bench = Bench()
    bench.copilot = syncing.copilot
    bench.node("a")
    bench.has_batch("a", 2000, GIB)
    bench.place_node_manager("a", "a:8041", cluster="east")

    before = await syncing.sync()
    assert (before.failures, before.set_totals) == ({"east": "east is not configured"}, 0)
    assert before.nodes == {DEFAULT_CLUSTER: 0}

    configured.add("east")
    after = await syncing.sync()
    assert (after.failures, after.set_totals, after.matched) == ({}, 1, 1)
    assert east.managers["a:8041"].total == YarnResource(2, 1024)
