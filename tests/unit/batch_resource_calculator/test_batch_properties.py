"""What must hold of the formula for every node and every load."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.model.tiers import PriorityClass
from cotenant_batch_resource_calculator.formulas.amounts import Amounts, margin_of, to_zone_level, total
from cotenant_batch_resource_calculator.formulas.batch import (
    BatchStrategy,
    BatchTerms,
    CalculatePolicy,
    MeasuredUsage,
    PodNeed,
    calculate_batch,
    sum_need,
    threshold_of,
)
from cotenant_batch_resource_calculator.formulas.numa import calculate_zones, zone_shares
from cotenant_batch_resource_calculator.formulas.placing import offer
from cotenant_batch_resource_calculator.formulas.synchronise import differs, within_band

UNHURRIED = settings(deadline=None)
"""A busy machine is no counter-example."""

MILLI = st.integers(0, 256_000)
BYTES = st.integers(0, 1 << 42)
AMOUNTS = st.builds(Amounts, MILLI, BYTES)
STRATEGIES = st.builds(
    BatchStrategy,
    cpu_reclaim_percent=st.integers(0, 100),
    memory_reclaim_percent=st.integers(0, 100),
    cpu_policy=st.sampled_from([CalculatePolicy.USAGE, CalculatePolicy.MAX_USAGE_REQUEST]),
    memory_policy=st.sampled_from(CalculatePolicy),
    cpu_threshold_percent=st.none() | st.integers(0, 200),
    memory_threshold_percent=st.none() | st.integers(0, 200),
)


@st.composite
def loads(draw: st.DrawFn) -> dict[str, object]:
    """A node with up to six pods, some of them measured, and up to two measured pods that are not placed."""
    names = [f"default/p{number}" for number in range(draw(st.integers(0, 6)))]
    pods = [PodNeed(name, draw(st.sampled_from(PriorityClass)), draw(st.booleans()), draw(AMOUNTS)) for name in names]
    measured = [name for name in (*names, "default/gone", "default/left") if draw(st.booleans())]
    metrics = {
        name: MeasuredUsage(name, draw(AMOUNTS), draw(st.sampled_from(["", "koord-prod", "koord-batch"]))) for name in measured
    }
    return {
        "capacity": draw(AMOUNTS),
        "node_reserved": draw(AMOUNTS),
        "system_usage": draw(AMOUNTS),
        "host_applications": (),
        "pods": pods,
        "metrics": metrics,
        "strategy": draw(STRATEGIES),
    }


def calculate(load: dict[str, object]) -> BatchTerms:
    rest = {name: given for name, given in load.items() if name not in ("pods", "metrics")}
    need = sum_need(load["pods"], load["metrics"])  # type: ignore[arg-type]
    return calculate_batch(**rest, need=need)  # type: ignore[arg-type]


@UNHURRIED
@given(loads())
def test_batch_is_never_negative_and_never_above_capacity_less_the_margin(load: dict[str, object]) -> None:
    terms = calculate(load)
    usable = terms.capacity - terms.margin
    assert 0 <= terms.batch.cpu <= max(usable.cpu, 0)
    assert 0 <= terms.batch.memory <= max(usable.memory, 0)


@UNHURRIED
@given(loads(), AMOUNTS)
def test_more_use_by_services_never_leaves_more_batch(load: dict[str, object], more: Amounts) -> None:
    before = calculate(load).batch
    metrics = load["metrics"]
    assert isinstance(metrics, dict)
    raised = {name: MeasuredUsage(name, metric.usage + more, metric.priority) for name, metric in metrics.items()}
    after = calculate(load | {"metrics": raised}).batch
    assert after.cpu <= before.cpu
    assert after.memory <= before.memory


@UNHURRIED
@given(loads(), AMOUNTS)
def test_more_system_use_never_leaves_more_batch(load: dict[str, object], more: Amounts) -> None:
    system = load["system_usage"]
    assert isinstance(system, Amounts)
    before, after = calculate(load).batch, calculate(load | {"system_usage": system + more}).batch
    assert after.cpu <= before.cpu
    assert after.memory <= before.memory


@UNHURRIED
@given(loads())
def test_max_usage_request_offers_the_least(load: dict[str, object]) -> None:
    strategy = load["strategy"]
    assert isinstance(strategy, BatchStrategy)

    def offered(policy: CalculatePolicy) -> Amounts:
        chosen = BatchStrategy(strategy.cpu_reclaim_percent, strategy.memory_reclaim_percent, policy, policy)
        return calculate(load | {"strategy": chosen}).batch

    largest = offered(CalculatePolicy.MAX_USAGE_REQUEST)
    assert largest.cpu <= offered(CalculatePolicy.USAGE).cpu or any(pod.exclusive for pod in load["pods"])  # type: ignore[attr-defined]
    assert largest.memory <= offered(CalculatePolicy.USAGE).memory


@UNHURRIED
@given(AMOUNTS, st.lists(st.integers(-1, 5), max_size=4), st.integers(1, 4))
def test_zone_shares_never_sum_to_less_than_the_whole(amounts: Amounts, zones: list[int], count: int) -> None:
    shares = zone_shares(to_zone_level(amounts), sorted(set(zones)), count)
    whole = to_zone_level(amounts)
    assert len(shares) == count
    assert whole.cpu <= total(shares).cpu <= whole.cpu + count
    assert total(shares).memory >= whole.memory * (1 - 1e-12)


@UNHURRIED
@given(loads(), st.integers(1, 4))
def test_zones_never_offer_more_than_margin_and_threshold_leave(load: dict[str, object], count: int) -> None:
    strategy = load["strategy"]
    assert isinstance(strategy, BatchStrategy)
    zone = Amounts(64_000, 1 << 37)
    found = calculate_zones(
        capacities=[zone] * count,
        node_reserved=load["node_reserved"],  # type: ignore[arg-type]
        system_used=load["system_usage"],  # type: ignore[arg-type]
        pods=load["pods"],  # type: ignore[arg-type]
        metrics=load["metrics"],  # type: ignore[arg-type]
        strategy=strategy,
    )
    unreserved = zone - margin_of(zone, strategy.cpu_reclaim_percent, strategy.memory_reclaim_percent)
    usable = to_zone_level(unreserved.smaller(threshold_of(zone, strategy)))
    for offered in found:
        assert 0 <= offered.cpu <= usable.cpu
        assert 0 <= offered.memory <= usable.memory


@UNHURRIED
@given(AMOUNTS, AMOUNTS, st.floats(0.5, 3.0))
def test_the_offer_and_the_foreign_share_never_exceed_the_origin(batch: Amounts, foreign: Amounts, ratio: float) -> None:
    found = offer(batch, ratio, {"kubernetes.io/batch-cpu": foreign.cpu, "kubernetes.io/batch-memory": foreign.memory})
    assert found.offered is not None
    assert found.offered.cpu == max(found.origin.cpu - foreign.cpu, 0)
    assert found.offered.memory == max(found.origin.memory - foreign.memory, 0)
    assert found.origin.cpu >= batch.cpu


@UNHURRIED
@given(MILLI, st.floats(0.01, 1.0))
def test_equal_figures_never_differ_and_a_change_of_presence_always_does(figure: int, band: float) -> None:
    assert not differs(figure, figure, band)
    assert not differs(None, None, band)
    assert differs(None, figure, band)
    assert differs(figure, None, band)
    assert differs(0, figure, band) == (figure > 0)


@UNHURRIED
@given(st.lists(MILLI, min_size=1), st.floats(0.01, 1.0))
def test_a_published_figure_stays_within_the_band_of_the_true_one(figures: list[int], band: float) -> None:
    published: int | None = None
    for figure in figures:
        published = within_band(published, figure, band)
        assert abs(published - figure) <= published * band or published == figure
