"""The cycle of the plugins through apply and decide: profiles, order, limits, filters, memory."""

from datetime import timedelta

import msgspec

from cotenant.events.descheduling import DeschedulingCycle
from cotenant.events.node.runs import ContainerRun, RunPhase, RunStatus
from cotenant.explain.sentences import sentence
from cotenant.model.subjects import run_subject
from cotenant_descheduler_arbiter.config.configuration import DeschedulerConfiguration
from cotenant_descheduler_arbiter.plugins.cycle_evictor import MAX_EVICTIONS
from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import CYCLE, Cluster
from tests.unit.descheduler_arbiter.plugins.builders_profiles import configured, profile


def old_pods(count: int, config: DeschedulerConfiguration, *, node: str = "a") -> Cluster:
    """Pods of one workload on a node, made at START; node b is empty."""
    cluster = Cluster(config)
    cluster.node("a")
    cluster.node("b")
    for index in range(count):
        cluster.pod(f"web-{index}", node)
    return cluster


def cycle_of(cluster: Cluster, name: str = "one") -> DeschedulingCycle:
    data = cluster.last[f"descheduling.cycles.{name}"].data
    assert isinstance(data, DeschedulingCycle)
    return data


def going(cluster: Cluster) -> list[str]:
    return sorted(job.pod for job in cluster.migrations())


LIFE_TIME = {"PodLifeTime": {"maxPodLifeTimeSeconds": 60}}


def test_a_plugins_cycle_makes_jobs_with_the_plugin_the_figures_and_the_profile() -> None:
    cluster = old_pods(2, configured(profile("one", deschedule=LIFE_TIME)))
    assert cluster.advance(timedelta(seconds=60)) != []
    assert cluster.migrations() == []
    cluster.advance(timedelta(seconds=10))
    assert going(cluster) == ["web-0", "web-1"]
    job = cluster.migrations()[0]
    assert (job.trigger, job.evict_reason) == ("PodLifeTime", "it is 70 s old, the maximum is 60 s")
    assert job.labels == {"descheduler.cotenant.io/profile": "one"}
    assert job.annotations == {"descheduler.cotenant.io/cycle": "2026-01-01T00:01:10Z"}
    assert (job.ttl_seconds, job.phase) == (300, "Running")


def test_a_cycle_runs_once_per_interval_and_says_what_it_did() -> None:
    cluster = old_pods(3, configured(profile("one", deschedule=LIFE_TIME)))
    cluster.advance(timedelta(seconds=70))
    record = cycle_of(cluster)
    assert (record.nodes, record.pods, [(each.plugin, each.evicted) for each in record.plugins]) == (2, 3, [("PodLifeTime", 3)])
    assert "3 of 3 pods on 2 nodes shall go" in sentence(cluster.last["descheduling.cycles.one"])
    cluster.pod("late-0", "a")
    assert all(not event.subject.startswith("descheduling.") for event in cluster.advance(timedelta(seconds=9)))
    cluster.advance(timedelta(seconds=1))
    assert "late-0" in going(cluster)


def test_a_restart_in_the_middle_of_an_interval_does_not_run_the_cycle_again() -> None:
    cluster = old_pods(1, configured(profile("one", deschedule=LIFE_TIME)))
    cluster.advance(timedelta(seconds=70))
    cluster.pod("late-0", "a")
    cluster.restart()
    cluster.advance(timedelta(seconds=5))
    assert going(cluster) == ["web-0"]


def test_the_limits_of_a_cycle_hold_over_profiles_and_plugins_and_the_refusal_is_recorded() -> None:
    config = configured(
        profile("one", deschedule=LIFE_TIME),
        profile("two", deschedule={"RemovePodsHavingTooManyRestarts": {"podRestartThreshold": 1}}),
        maxNoOfPodsToEvictTotal=2,
    )
    cluster = old_pods(4, config)
    cluster.advance(timedelta(seconds=70))
    assert going(cluster) == ["web-0", "web-1"]
    record = cycle_of(cluster)
    assert record.kept_count == 2
    assert record.kept[0].reason == "this cycle has reached its 2 evictions"
    cluster.restart()
    cluster.advance(timedelta(seconds=1))
    assert going(cluster) == ["web-0", "web-1"]


def test_a_node_limit_of_one_moves_one_pod_of_each_node() -> None:
    config = configured(profile("one", deschedule=LIFE_TIME), maxNoOfPodsToEvictPerNode=1)
    cluster = old_pods(2, config)
    cluster.pod("api-0", "b", owner="api")
    cluster.advance(timedelta(seconds=70))
    assert going(cluster) == ["api-0", "web-0"]


def test_budgets_of_migrating_pods_hold_back_a_plugin() -> None:
    cluster = old_pods(4, configured(profile("one", deschedule=LIFE_TIME, jobs={"maxMigratingPerNode": 1})))
    cluster.advance(timedelta(seconds=70))
    assert going(cluster) == ["web-0"]
    assert "maxMigratingPerNode is 1" in cycle_of(cluster).kept[0].reason


def test_a_pod_whose_job_has_not_ended_is_not_chosen_again() -> None:
    cluster = old_pods(1, configured(profile("one", deschedule=LIFE_TIME)))
    for _ in range(5):
        cluster.advance(timedelta(seconds=70))
    assert len([job for job in cluster.migrations() if not job.finished]) <= 1


def test_a_workload_that_was_just_moved_is_left_alone_for_the_back_off() -> None:
    cluster = old_pods(2, configured(profile("one", deschedule=LIFE_TIME), workloadBackOff={"base": "5m", "maximum": "30m"}))
    cluster.advance(timedelta(seconds=70))
    for job in cluster.migrations():
        cluster.answer(job.job)
    cluster.decide()
    for job in cluster.migrations():
        cluster.end_pod(job.pod)
    cluster.pod("web-9", "b")
    cluster.advance(timedelta(seconds=70))
    assert "web-9" not in going(cluster)
    cluster.advance(timedelta(minutes=10))
    assert "web-9" in going(cluster)


def test_deschedule_plugins_of_all_profiles_run_before_balance_plugins() -> None:
    config = configured(
        profile("one", balance={"RemoveDuplicates": {}}),
        profile("two", deschedule=LIFE_TIME),
        maxNoOfPodsToEvictTotal=1,
    )
    cluster = old_pods(3, config)
    cluster.advance(timedelta(seconds=70))
    (job,) = cluster.migrations()
    assert job.trigger == "PodLifeTime"


def test_duplicates_are_moved_off_until_every_node_may_have_its_share() -> None:
    cluster = old_pods(4, configured(profile("one", balance={"RemoveDuplicates": {}})))
    cluster.advance(timedelta(seconds=10))
    assert len(cluster.migrations()) == 2
    assert cluster.migrations()[0].evict_reason == "its node has 4 of its owner's 4 pods, 2 nodes could have 2 each"


def test_with_node_fit_a_pod_that_no_other_node_takes_stays() -> None:
    config = configured(profile("one", deschedule=LIFE_TIME, jobs={"nodeFit": True}))
    cluster = old_pods(2, config)
    cluster.node("b", cpu="400m")
    cluster.advance(timedelta(seconds=70))
    assert cluster.migrations() == []
    cluster.node("b", cpu="1")
    cluster.advance(CYCLE)
    assert going(cluster) == ["web-0", "web-1"]


def test_the_node_selector_of_the_migration_controller_says_which_nodes_count_for_node_fit() -> None:
    jobs = {"nodeFit": True, "nodeSelector": "pool in (batch, web),!spot"}
    config = configured(profile("one", deschedule=LIFE_TIME, jobs=jobs))
    cluster = old_pods(1, config)
    cluster.advance(timedelta(seconds=70))
    assert cluster.migrations() == []
    cluster.node("b", labels={"pool": "web"})
    cluster.advance(CYCLE)
    assert going(cluster) == ["web-0"]


def test_a_profile_sees_only_the_nodes_that_it_and_the_document_select() -> None:
    config = configured(
        profile("one", deschedule=LIFE_TIME, nodeSelector={"matchLabels": {"pool": "web"}}),
        nodeSelector={"matchLabels": {"zone": "x"}},
    )
    cluster = Cluster(config)
    for name, labels in (("a", {"pool": "web", "zone": "x"}), ("b", {"pool": "web", "zone": "x"}), ("c", {"pool": "web"})):
        cluster.node(name, labels=labels)
        cluster.pod(f"{name}-0", name, owner=name)
    cluster.advance(timedelta(seconds=70))
    assert going(cluster) == ["a-0", "b-0"]


def test_with_one_node_nothing_runs_and_the_record_says_so() -> None:
    cluster = Cluster(configured(profile("one", deschedule=LIFE_TIME)))
    cluster.node("a")
    cluster.pod("web-0", "a")
    cluster.advance(timedelta(seconds=70))
    assert cluster.migrations() == []
    assert "fewer than two nodes" in cycle_of(cluster).message


def test_a_dry_run_names_the_pods_and_moves_none() -> None:
    cluster = old_pods(2, configured(profile("one", deschedule=LIFE_TIME), dryRun=True))
    cluster.advance(timedelta(seconds=70))
    assert cluster.migrations() == []
    assert cycle_of(cluster).message == "dry run: would move default/web-0, default/web-1"


def test_failed_pods_are_removed_with_the_reason_of_their_containers() -> None:
    args = {"minPodLifetimeSeconds": 60, "reasons": ["OOMKilled"]}
    config = configured(profile("one", deschedule={"RemoveFailedPods": args}))
    cluster = old_pods(3, config)
    for name, reason in (("web-0", "OOMKilled"), ("web-1", "Error")):
        ended = ContainerRun(name="main", state="terminated", reason=reason)
        run = RunStatus(
            node="a", namespace="default", name=name, uid=f"uid-{name}", phase=RunPhase.FAILED, containers=(ended,)
        )
        cluster.publish(run_subject("a", "default", name), run)
    cluster.advance(timedelta(seconds=70))
    assert going(cluster) == ["web-0"]
    assert cluster.migrations()[0].evict_reason == "it has failed: OOMKilled"


def test_restarts_of_init_containers_count_only_if_asked_for() -> None:
    for including, gone in ((False, []), (True, ["web-0"])):
        args = {"podRestartThreshold": 5, "includingInitContainers": including}
        cluster = old_pods(1, configured(profile("one", deschedule={"RemovePodsHavingTooManyRestarts": args})))
        document = msgspec.json.decode(cluster.last["objects.core.pods.default.web-0"].data.object)  # type: ignore[attr-defined]
        document["spec"]["initContainers"] = [{"name": "setup"}]
        cluster.store("objects.core.pods.default.web-0", document)
        runs = tuple(ContainerRun(name=name, ready=True, restarts=count) for name, count in (("setup", 3), ("main", 2)))
        run = RunStatus(
            node="a", namespace="default", name="web-0", uid="uid-web-0", phase=RunPhase.RUNNING, containers=runs
        )
        cluster.publish(run_subject("a", "default", "web-0"), run)
        cluster.advance(timedelta(seconds=10))
        assert going(cluster) == gone


def test_a_pod_that_tolerates_everything_goes_to_a_node_with_two_taints() -> None:
    """Counting tolerations, as kubernetes-sigs does, would keep it."""
    thin = {"HighNodeUtilization": {"thresholds": {"cpu": 20}}}
    cluster = Cluster(configured(profile("one", balance=thin)))
    cluster.node("a")
    taints = [{"key": key, "effect": "NoSchedule"} for key in ("x", "y")]
    cluster.node("b", taints=taints)
    cluster.pod("web-0", "a", cpu="1", tolerations=[{"operator": "Exists"}])
    cluster.pod("api-0", "b", cpu="5", owner="api", tolerations=[{"operator": "Exists"}])
    cluster.advance(CYCLE)
    assert going(cluster) == ["web-0"]


def test_a_pod_from_the_future_is_new() -> None:
    cluster = old_pods(1, configured(profile("one", deschedule=LIFE_TIME)))
    cluster.now -= timedelta(days=1)
    cluster.decide()
    assert cluster.migrations() == []


def test_a_profile_that_is_no_longer_configured_loses_its_record() -> None:
    cluster = old_pods(1, configured(profile("one", deschedule=LIFE_TIME), profile("two", deschedule=LIFE_TIME)))
    cluster.advance(timedelta(seconds=10))
    cluster.config = configured(profile("two", deschedule=LIFE_TIME))
    cluster.restart()
    cluster.advance(timedelta(seconds=1))
    assert cluster.last["descheduling.cycles.one"].tombstone
    assert not cluster.last["descheduling.cycles.two"].tombstone


def test_a_cycle_is_one_batch_however_many_pods_are_too_old() -> None:
    cluster = Cluster(configured(profile("one", deschedule=LIFE_TIME)))
    cluster.node("a", cpu="2000")
    cluster.node("b")
    for index in range(MAX_EVICTIONS + 20):
        cluster.pod(f"web-{index:04}", "a", owner=f"web-{index}")
    cluster.now += timedelta(seconds=70)
    events = cluster.core.decide(cluster.now)
    assert len(events) == MAX_EVICTIONS + 1
    record = events[0].data
    assert isinstance(record, DeschedulingCycle)
    assert (record.kept_count, len(record.kept)) == (20, 10)
    assert record.kept[0].reason == f"this cycle has reached {MAX_EVICTIONS} evictions, the most of any cycle"
