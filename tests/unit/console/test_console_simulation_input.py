"""What simulate reads and draws: the openb trace, cluster files, durations, charts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.domain.gangs import MAX_GANG
from cotenant_console.durations import parse_duration_seconds
from cotenant_console.manifests.documents import ManifestError
from cotenant_scheduler.cycle.placing import MOST_TOGETHER
from cotenant_verification.simulate.chart import axis_top, chart_lines, column_means, span
from cotenant_verification.simulate.cluster_file import read_cluster
from cotenant_verification.simulate.openb import TraceError, TracePod, offered_gpus, pod_document, read_trace

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn-1,64000,262144,2,T4\nn-0,32000,262144,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "b,6000,12288,1,465,V100M16|T4,BE,Running,20,30,20\n"
    "a,12000,16384,2,1000,,LS,Running,10,20,10\n"
    "c,1000,1024,0,0,,Burstable,Pending,10,10,\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "openb_node_list_all_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_default.csv").write_text(PODS)
    return tmp_path


def test_a_trace_is_sorted_by_node_name_and_by_the_moment_pods_come(folder: Path) -> None:
    trace = read_trace(folder)
    assert [node.name for node in trace.nodes] == ["n-0", "n-1"]
    assert [(pod.created, pod.name) for pod in trace.pods] == [(10, "a"), (10, "c"), (20, "b")]


def test_gpus_are_whole_and_in_sum(folder: Path) -> None:
    trace = read_trace(folder)
    parts = dict.fromkeys((f"koordinator.sh/gpu{part}" for part in ("-core", "-memory-ratio", ".shared")), 200)
    assert offered_gpus(trace.nodes[1].gpus) == {"nvidia.com/gpu": 2, **parts}
    whole, none, part = (pod_document(pod)["spec"]["containers"][0]["resources"]["requests"] for pod in trace.pods)  # type: ignore[index,call-overload]
    core, memory = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"
    assert whole == {"cpu": "12000m", "memory": "16384Mi", core: "200", memory: "200", "nvidia.com/gpu": "2"}
    assert none == {"cpu": "1000m", "memory": "1024Mi"}
    assert part == {"cpu": "6000m", "memory": "12288Mi", core: "47", memory: "47"}


def test_models_become_a_required_affinity(folder: Path) -> None:
    document = pod_document(read_trace(folder).pods[2])
    terms = document["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]  # type: ignore[index,call-overload]
    assert terms["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == ["V100M16", "T4"]  # type: ignore[index,call-overload]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("12000", "-1", r"openb_pod_list_default.csv:3: cpu_milli is '-1', not a whole number"),
        (",LS,", ",VIP,", r"csv:3: qos is 'VIP', not one of BE, Burstable"),
        ("Running,20,30", "Running,20,3", r"csv:2: deletion_time 3 lies before creation_time 20"),
        ("qos", "class", "column qos is missing"),
        ("b,6000,12288,1,465,V100M16|T4,BE,Running,20,30,20", "b,6000", "csv:2: the line ends too early"),
    ],
)
def test_a_damaged_trace_is_named_with_file_and_line(folder: Path, old: str, new: str, message: str) -> None:
    (folder / "openb_pod_list_default.csv").write_text(PODS.replace(old, new))
    with pytest.raises(TraceError, match=message):
        read_trace(folder)


def test_a_missing_trace_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read_trace(tmp_path)


@given(st.integers(1, 8), st.integers(1, 1000))
def test_gpu_core_never_exceeds_whole_gpus(gpus: int, milli: int) -> None:
    pod = TracePod("p", 1, 1, gpus, milli, (), "LS", 0, 1)
    assert 0 < pod.gpu_core <= gpus * 100


CLUSTER = """\
apiVersion: simulation.cotenant.io/v1alpha1
kind: Cluster
nodes: [{name: node, count: 2, cpu: "8", memory: 32Gi}]
workloads:
- {name: web, replicas: 2, requests: {cpu: "2"}, load: {night: 200m, noon: 1500m}}
- {name: job, arrivals: {every: 10s, lastsFrom: 30s, lastsTo: 2m}, usesCpu: 900m}
"""


LAST = "usesCpu: 900m}\n"


def fault(members: str) -> str:
    """The end of the file, and a fault behind it."""
    return f"{LAST}faults: [{{{members}, lasts: 10s}}]\n"


def test_a_cluster_file_is_read_with_its_amounts(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(CLUSTER)
    cluster = read_cluster(path)
    assert (cluster.nodes[0].cpu_milli, cluster.nodes[0].memory_bytes) == (8000, 32 << 30)
    assert cluster.workloads[1].arrivals is not None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("count: 2", "count: two", r"c.yaml: Expected `int`, got `str` - at `\$.nodes\[0\].count`"),
        ("count: 2", "counts: 2", r"unknown field `counts`"),
        ('cpu: "8"', 'cpu: "8x"', r"nodes\[0\]\.cpu"),
        ("memory: 32Gi", 'memory: "-1"', r"nodes\[0\]\.memory: must be above 0"),
        ("replicas: 2, ", "", r"workloads\[0\]: give either replicas or arrivals"),
        ("every: 10s", "every: soon", r"workloads\[1\]\.arrivals\.every: 'soon' is not a duration"),
        ("lastsTo: 2m", "lastsTo: 2s", r"lastsTo: must not be below lastsFrom"),
        ("replicas: 2", "replicas: 2, gang: 3", r"workloads\[0\]\.gang: must be 0 to 7749, and divide the number of replicas"),
        (LAST, fault("at: soon, kind: crash, target: scheduler"), r"faults\[0\]\.at: 'soon' is not a duration"),
        (LAST, fault("at: 1m, kind: flood, target: node-0"), r"Invalid enum value 'flood' - at `\$.faults\[0\].kind`"),
        (LAST, fault("at: 1m, kind: node-death, target: node-2"), r"faults\[0\].target: must be the name of a node$"),
        (LAST, fault("at: 1m, kind: crash, target: node-0"), r"must be the name of a service \(metrics-ingest, "),
        (LAST, fault("at: 1m, kind: partition"), r"must be the name of a node or a service"),
        (LAST, fault("at: 1m, kind: stall, target: node-0"), r"target: is not given for this kind: it is the log"),
        ("kind: Cluster", "kind: Pod", "is not apiVersion simulation.cotenant.io/v1alpha1, kind Cluster"),
    ],
)
def test_what_is_wrong_in_a_cluster_file_is_named_by_field(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(CLUSTER.replace(old, new, 1))
    with pytest.raises(ManifestError, match=message):
        read_cluster(path)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172800), ("5", 5)])
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "10 m", "-5s", "5x", "1m nonsense"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_seconds(text)


@pytest.mark.parametrize("text", ["3651d", "999999999999999h", "9" * 400, "9" * 400 + "h"])
def test_a_duration_of_more_than_ten_years_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is longer than 3650 days"):
        parse_duration_seconds(text)


def test_a_column_is_the_time_weighted_mean_and_a_value_holds_until_the_next() -> None:
    assert column_means([(0, 10.0), (5, 30.0)], 0, 10, 2) == [10.0, 30.0]
    assert column_means([(2.5, 40.0)], 0, 10, 2) == [20.0, 40.0]
    assert column_means([], 0, 10, 2) == [0.0, 0.0]


@given(st.lists(st.tuples(st.floats(0, 99), st.floats(0, 100)), max_size=20), st.integers(1, 40))
def test_the_mean_of_the_columns_is_the_mean_over_time(points: list[tuple[float, float]], columns: int) -> None:
    ordered = sorted(points)
    whole = column_means(ordered, 0, 100, 1)[0]
    means = column_means(ordered, 0, 100, columns)
    assert sum(means) / columns == pytest.approx(whole, abs=1e-6)


def test_a_chart_has_a_readable_axis_even_for_a_nearly_empty_cluster() -> None:
    lines = chart_lines("cpu", [(0, 0.4), (50, 0.8)], 0, 100, width=10, height=2)
    assert lines[0] == "cpu  (highest mean of a column 0.8 %, highest moment 0.8 %)"
    assert lines[1].startswith("  1.0 % |")
    assert lines[2] == "  0.5 % |▆▆▆▆▆█████"
    assert lines[1] == "  1.0 % |     ▅▅▅▅▅"
    assert lines[-1].endswith("100 s")
    assert axis_top(99.5) == 100
    assert span(149 * 86_400) == "149 d"


def test_the_largest_gang_is_what_one_batch_of_the_scheduler_places() -> None:
    assert MAX_GANG == MOST_TOGETHER
