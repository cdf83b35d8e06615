"""Every plugin gives a row the same answer alone, among some, and among all."""

from __future__ import annotations

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_scheduler.framework.plugin import filter_of_row, score_of_row
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from cotenant_scheduler.plugins.resource_fit import ScoringStrategy
from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs
from tests.unit.scheduler.builders_scheduler import GIB, Story, batch_pod, node, pod

percent = st.sampled_from([0, 10, 40, 65, 90])
thresholds = st.fixed_dictionaries({"cpu": percent, "memory": percent})
annotation = st.fixed_dictionaries(
    {},
    optional={
        "usageThresholds": thresholds,
        "prodUsageThresholds": thresholds,
        "aggregatedUsage": st.fixed_dictionaries(
            {
                "usageThresholds": thresholds,
                "usageAggregationType": st.sampled_from(["p95", "avg"]),
                "usageAggregatedDuration": st.sampled_from(["0s", "5m0s"]),
            }
        ),
    },
)
node_parts = st.tuples(
    st.sampled_from(["0", "4", "16"]),
    st.sampled_from(["0", "8Gi", "100Gi"]),
    annotation,
    st.none() | st.tuples(st.integers(0, 12_000), st.integers(0, 90), st.integers(0, 400)),
    st.integers(0, 9000),
    st.booleans(),
)
args = st.builds(
    LoadAwareArgs,
    filter_expired_node_metrics=st.booleans(),
    enable_schedule_when_node_metrics_expired=st.booleans(),
    score_according_prod_usage=st.booleans(),
    dominant_resource_weight=st.sampled_from([0, 3]),
    prod_usage_thresholds=st.just({}) | thresholds,
)
PORT = [{"name": "m", "ports": [{"containerPort": 1, "hostPort": 80}], "resources": {"requests": {"cpu": "1"}}}]
ZONE = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "zone"}
APART = {"requiredDuringSchedulingIgnoredDuringExecution": [ZONE]}
EVEN = {**ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
PODS = [
    pod("small", cpu="100m", memory="10Mi", priority=9500),
    pod("empty", requests={}),
    pod("web", image="web:1"),
    pod("db", image="db"),
    batch_pod("job"),
    pod("port", containers=PORT),
    pod("gpu", requests={"nvidia.com/gpu": "1"}),
    pod("alone", labels={"app": "a"}, affinity={"podAntiAffinity": APART}),
    pod("spread", labels={"app": "a"}, topologySpreadConstraints=[EVEN]),
    pod("tolerant", tolerations=[{"operator": "Exists"}], nodeSelector={"zone": "a"}),
]


@settings(max_examples=80, deadline=None)
@given(args, st.lists(node_parts, min_size=1, max_size=8), st.data())
def test_a_row_alone_gets_the_answer_that_it_gets_among_all(
    load_aware: LoadAwareArgs,
    parts: list[tuple[str, str, dict[str, object], tuple[int, int, int] | None, int, bool]],
    data: st.DataObject,
) -> None:
    strategy = data.draw(st.sampled_from(ScoringStrategy))
    story = Story(SchedulerConfig(load_aware=load_aware, scoring_strategy=strategy))
    for i, (cpu, memory, custom, metric, batch, odd) in enumerate(parts):
        text = msgspec.json.encode(custom).decode()
        story.node(
            node(
                f"n{i}",
                cpu=cpu,
                memory=memory,
                labels={"zone": "a" if odd else "b"},
                taints=[{"key": "t", "effect": "NoSchedule" if i % 2 else "PreferNoSchedule"}] if odd else [],
                unschedulable=i == 3,
                images={"web:1": 100 * i, "db:latest": 3000} if odd else {},
                annotations={"scheduling.koordinator.sh/usage-thresholds": text},
            )
        )
        story.batch(f"n{i}", batch)
        if metric is not None:
            story.metric(f"n{i}", metric[0], metric[1] * GIB, age=metric[2])
    story.pods(*PODS)
    story.settle()
    nodes = story.core.nodes
    nodes.expire(int(story.now.timestamp() * 1_000_000))
    some = np.array(data.draw(st.lists(st.integers(0, len(parts) - 1), unique=True).map(sorted)), dtype=np.int64)
    part = slice(*sorted((data.draw(st.integers(0, len(parts))), data.draw(st.integers(0, len(parts))))))
    shapes = {id(r.facts.shape): r.facts.shape for r in story.core.pods.records.values() if r.facts and r.facts.shape}
    assert len(shapes) == len(PODS)
    for shape in shapes.values():
        for plugin in story.core.profile.filters:
            codes = plugin.filter(nodes, shape, nodes.all_rows)
            alone = filter_of_row(plugin, nodes, shape)
            assert codes.tolist() == [alone(row) for row in range(nodes.size)], plugin.name
            assert plugin.filter(nodes, shape, some).tolist() == codes[some].tolist(), plugin.name
            assert plugin.filter(nodes, shape, part).tolist() == codes[part].tolist(), plugin.name
            for code in sorted(set(codes.tolist()) - {0}):
                refused = np.flatnonzero(codes == code)
                assert plugin.reason(nodes, shape, code, refused).text
        for score in story.core.profile.scores:
            values = score.score(nodes, shape, nodes.all_rows)
            one = score_of_row(score, nodes, shape)
            assert values.tolist() == [one(row) for row in range(nodes.size)], score.name
            assert score.score(nodes, shape, some).tolist() == values[some].tolist(), score.name
            assert score.score(nodes, shape, part).tolist() == values[part].tolist(), score.name
