"""CPU normalisation: how fast a node's CPUs are, relative to the reference model.

In: the machine's report of its CPUs, the strategy of the node, its label. Out: the ratio as the annotation has it (two
decimals), or a RatioError. Source: Koordinator CPU normalisation plugin, newest rule.

    label cpu-normalization-enabled decides, else the strategy; switched off: 1.00
    model known:  hyper-threading and turbo on -> hyperThreadTurboEnabledRatio   hyper-threading -> hyperThreadEnabledRatio
                  turbo -> turboEnabledRatio                                     neither         -> baseRatio
    model or that ratio not listed: defaultRatio, else an error
    a ratio outside of 1.0 .. 5.0 is an error, and so are unknown CPUs

After an error the previous ratio stays in force: the annotation and the scaling of batch-cpu go together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from cotenant.events.node.topology import CpuBasicInfo
from cotenant.model.names import (
    ANNOTATION_CPU_BASIC_INFO,
    ANNOTATION_CPU_NORMALIZATION_RATIO,
    LABEL_CPU_NORMALIZATION_ENABLED,
)
from cotenant_batch_resource_calculator.config.ratios import ModelRatios, NormalizationStrategy

LOWEST_RATIO = 1.0
HIGHEST_RATIO = 5.0
DISABLED = "1.00"
CLOSE = 0.01
"""Ratios that differ by no more count as equal."""
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "True", "TRUE"), True),
    **dict.fromkeys(("0", "f", "F", "false", "False", "FALSE"), False),
}


class RatioError(ValueError):
    """There is no ratio for the node; the message says why."""


class _BasicInfo(msgspec.Struct, frozen=True, rename="camel"):
    cpu_model: str = ""
    hyper_thread_enabled: bool = False
    turbo_enabled: bool = False
    vendor_id: str = msgspec.field(default="", name="vendorID")


_BASIC_INFO = msgspec.json.Decoder(_BasicInfo)


def parse_basic_info(annotations: Mapping[str, str]) -> CpuBasicInfo | None:
    """Return a NodeResourceTopology's description of the CPUs; None without one. Raises RatioError."""
    text = annotations.get(ANNOTATION_CPU_BASIC_INFO)
    if text is None:
        return None
    try:
        info = _BASIC_INFO.decode(text)
    except msgspec.DecodeError as error:
        raise RatioError(f"annotation {ANNOTATION_CPU_BASIC_INFO}: {error}") from error
    return CpuBasicInfo(
        cpu_model=info.cpu_model,
        vendor_id=info.vendor_id,
        hyper_thread_enabled=info.hyper_thread_enabled,
        turbo_enabled=info.turbo_enabled,
    )


def parse_enabled(labels: Mapping[str, str]) -> bool | None:
    """Return the value of the node's label; None without it. Raises RatioError."""
    text = labels.get(LABEL_CPU_NORMALIZATION_ENABLED)
    if text is None:
        return None
    if text not in _BOOLEANS:
        raise RatioError(f"label {LABEL_CPU_NORMALIZATION_ENABLED} is {text!r}: must be true or false")
    return _BOOLEANS[text]


def parse_ratio(annotations: Mapping[str, str]) -> float | None:
    """Return the ratio in the node's annotation; None without it. Raises RatioError."""
    text = annotations.get(ANNOTATION_CPU_NORMALIZATION_RATIO)
    if text is None:
        return None
    try:
        ratio = float(text)
    except ValueError:
        ratio = math.nan
    if not (math.isfinite(ratio) and ratio > 0):
        raise RatioError(f"annotation {ANNOTATION_CPU_NORMALIZATION_RATIO} is {text!r}: must be a number above 0")
    return ratio


def ratio_from_model(info: CpuBasicInfo, strategy: NormalizationStrategy) -> float:
    """Return the ratio of these CPUs. Raises RatioError."""
    state = (info.hyper_thread_enabled, info.turbo_enabled)
    model = strategy.ratio_model.get(info.cpu_model)
    ratio = _of_state(model, state) if model is not None else None
    if ratio is None:
        ratio = strategy.default_ratio
    if ratio is None:
        if model is None:
            raise RatioError(f"CPU model {info.cpu_model!r} is not in ratioModel, and there is no defaultRatio")
        raise RatioError(f"ratioModel[{info.cpu_model}] has no {_FIELDS[state]}, and there is no defaultRatio")
    return ratio


_FIELDS = {
    (True, True): "hyperThreadTurboEnabledRatio",
    (True, False): "hyperThreadEnabledRatio",
    (False, True): "turboEnabledRatio",
    (False, False): "baseRatio",
}


def _of_state(model: ModelRatios, state: tuple[bool, bool]) -> float | None:
    return {
        (True, True): model.hyper_thread_turbo_enabled_ratio,
        (True, False): model.hyper_thread_enabled_ratio,
        (False, True): model.turbo_enabled_ratio,
        (False, False): model.base_ratio,
    }[state]


def normalization(labels: Mapping[str, str], strategy: NormalizationStrategy, info: CpuBasicInfo | None) -> str:
    """Return the ratio annotation's text. Raises RatioError."""
    asked = parse_enabled(labels)
    if not (strategy.enable is True if asked is None else asked):
        return DISABLED
    if info is None:
        raise RatioError("the node's CPUs are unknown: neither its executor nor a NodeResourceTopology states their model")
    ratio = ratio_from_model(info, strategy)
    if not LOWEST_RATIO <= ratio <= HIGHEST_RATIO:
        bounds = f"must be between {LOWEST_RATIO} and {HIGHEST_RATIO}"
        raise RatioError(f"the ratio of CPU model {info.cpu_model!r} is {ratio}: {bounds}")
    return f"{ratio:.2f}"


def ratio_moved(old: float | None, new: float | None) -> bool:
    """Whether a ratio changed by more than CLOSE; None: there is none."""
    if old is None or new is None:
        return old is not new
    return old > new + CLOSE or old < new - CLOSE
