"""Windows of percentiles, as a colocation strategy writes them."""

from __future__ import annotations

import pytest

from cotenant.model.metric_windows import windows_seconds


def test_windows_are_whole_seconds_in_their_order_and_each_once() -> None:
    assert windows_seconds(["5m", "1h30m", "5m0s", "1500ms", "30s1m"]) == (300, 5400, 1, 90)
    assert windows_seconds(["1s", "168h"]) == (1, 7 * 86400)


@pytest.mark.parametrize("durations", [[], ["0"], ["999ms"], ["169h"], ["-5m"], ["5m", "soon"], ["5m"] * 9])
def test_what_cannot_be_windows_is_none(durations: list[str]) -> None:
    assert windows_seconds(durations) == ()
