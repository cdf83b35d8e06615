"""What an earlier executor may have left in files that no strategy desires a value for."""

from __future__ import annotations

from msgspec.structs import replace

from cotenant.events.node.resources import CpuIdentity
from cotenant_node_executor.core.initial_values import LEFT_OVER_NS
from cotenant_node_executor.strategies.strategy import RESTORE
from cotenant_node_executor.targets.interface import Knob
from tests.unit.node_executor.builders_node_executor import Bench, batch, capabilities, service, snapshot

JOB, WEB = "besteffort/poduid-job", "burstable/poduid-web"
SECONDS = LEFT_OVER_NS // 1_000_000_000


def running() -> Bench:
    bench = Bench(kernel=capabilities(also=(Knob.CPU_BURST, Knob.MEMORY_LOW))).load()
    bench.slo()
    for entry in (service("web"), batch("job")):
        bench.place(entry)
    for group in (WEB, JOB):
        bench.groups.update((group, f"{group}/main"))
    bench.groups.add("besteffort/yarn")
    return bench


def after(bench: Bench, seconds: int) -> Bench:
    bench.reading = replace(snapshot(4000, {"uid-web": 1500}), monotonic_ns=(1 + seconds) * 1_000_000_000)
    bench.look(1)
    return bench


def test_once_strategies_had_samples_to_decide_files_that_nobody_sets_get_their_initial_values() -> None:
    bench = running()
    for seconds in (0, SECONDS - 1):
        targets = after(bench, seconds).core.plan(bench.now).targets
        assert Knob.CPU_BURST not in targets.texts[WEB], "strategies may need some samples more"
    targets = after(bench, SECONDS).core.plan(bench.now).targets
    for group in (JOB, f"{JOB}/main", WEB, "besteffort", "burstable"):
        assert targets.texts[group][Knob.CPU_BURST] == "0"
    left = targets.winner(WEB, Knob.CPU_BURST)
    assert left is not None
    assert (left.strategy, left.why) == (RESTORE.name, "no strategy desires the value that an earlier executor may have set")
    assert Knob.CPU_BURST not in targets.texts.get("besteffort/yarn", {}), "not a pod's"


def test_what_a_strategy_sets_is_its_own_and_a_pod_that_comes_later_is_new() -> None:
    bench = running()
    bench.slo(be_identity=CpuIdentity(enable=True, group_identity=-1), ls_identity=CpuIdentity(enable=True, group_identity=2))
    after(bench, 0).core.plan(bench.now)
    targets = after(bench, SECONDS).core.plan(bench.now).targets
    idle = targets.winner(JOB, Knob.CPU_IDLE)
    assert idle is not None
    assert (idle.strategy, idle.value) == ("idle", "1")
    quota = targets.winner("besteffort", Knob.CPU_QUOTA)
    assert quota is not None
    assert quota.strategy == "suppress"

    bench.place(batch("late"))
    bench.groups.update(("besteffort/poduid-late", "besteffort/poduid-late/main"))
    targets = after(bench, SECONDS + 1).core.plan(bench.now).targets
    late = [each for each in targets.desired["besteffort/poduid-late"].values() if each.strategy == RESTORE.name]
    assert late == []
