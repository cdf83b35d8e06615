"""`dryRun` of a section reaches the node."""

from __future__ import annotations

import pytest

from cotenant_batch_resource_calculator.config.sections import STRATEGIES, SectionKind, load_strategies, select_strategy


@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda kind: kind.key)
def test_a_sections_dry_run_is_rendered_and_may_be_of_some_nodes_alone(kind: SectionKind) -> None:
    entry = '{"nodeSelector":{"matchLabels":{"pool":"trial"}},"DryRun":true}'
    section = load_strategies(kind, f'{{"clusterStrategy":{{}},"nodeStrategies":[{entry}]}}')
    assert select_strategy(section, {"pool": "trial"})["dryRun"] is True
    assert "dryRun" not in select_strategy(section, {})
