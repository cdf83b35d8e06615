"""The amplification ratios of a node's allocatable.

In: the strategy of the node, its CPU normalisation ratio. Out: ratios by resource, each as its text with two decimals has it;
none where nothing is amplified; or a RatioError. Source: Koordinator resource amplification plugin, newest rule.

    r     = resourceAmplificationRatio where it is enabled, else nothing
    r.cpu = r.cpu * normalisation ratio, each 1 where there is none; only if that is above 1
    a ratio below 1 is an error

The normalisation ratio is the one that is decided at the same time: Koordinator reads the one of its last pass from the node.
"""

from __future__ import annotations

from cotenant.domain.amplification import MAX_RATIO
from cotenant.model.names import CPU
from cotenant_batch_resource_calculator.config.ratios import AmplificationStrategy
from cotenant_batch_resource_calculator.formulas.normalization import RatioError


def amplification(strategy: AmplificationStrategy, normalization_ratio: float | None) -> dict[str, float]:
    """Return the ratios by resource, sorted by name. Raises RatioError."""
    ratios = dict(strategy.resource_amplification_ratio) if strategy.enable is True else {}
    of_cpu = ratios.get(CPU, 0.0)
    product = (of_cpu if of_cpu > 0 else 1.0) * (normalization_ratio if normalization_ratio is not None else 1.0)
    if product > 1.0:
        ratios[CPU] = product
    for resource, ratio in sorted(ratios.items()):
        if not 1.0 <= ratio <= MAX_RATIO:
            raise RatioError(f"the amplification ratio of {resource} is {ratio}: must be between 1 and {MAX_RATIO:.0f}")
    return {resource: float(f"{ratio:.2f}") for resource, ratio in sorted(ratios.items())}
