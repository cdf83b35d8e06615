"""A node where nothing changes: its strategies do not decide again."""

from __future__ import annotations

from msgspec import Struct

from cotenant_node_executor.strategies.registry import STRATEGIES
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Input, NodePolicy, Strategy, StrategyDecision
from tests.unit.node_executor.builders_node_executor import Bench, batch, snapshot

INPUTS = (Input.PODS, Input.TREE, Input.USAGE)


def test_a_strategy_decides_again_only_when_one_of_its_inputs_changed() -> None:
    """Bug: empty tables of volumes and of services' latencies were another object in each observation, which counted as a
    change: strategies of pods and of usage decided in every cycle of every node."""
    decided: list[str] = []

    def counting(name: str, of: Input) -> Strategy:
        def decide(_situation: Situation, _memory: Struct | None) -> StrategyDecision:
            decided.append(name)
            return StrategyDecision()

        def inputs(_policy: NodePolicy) -> frozenset[Input]:
            return frozenset((of,))

        return Strategy(name=name, topic=name, sets=(), decide=decide, inputs=inputs)

    bench = Bench(strategies=(*STRATEGIES, *(counting(each.value, each) for each in INPUTS))).load()
    bench.reading = snapshot(1000)
    bench.place(batch("job"))
    bench.look().core.plan(bench.now)
    assert sorted(decided) == ["pods", "tree", "usage"]
    for _ in range(3):
        bench.look(1).core.plan(bench.now)
    assert sorted(decided) == ["pods", "tree", "usage"]
    bench.reading = snapshot(2000)
    bench.look(1).core.plan(bench.now)
    assert decided[3:] == ["usage"]
