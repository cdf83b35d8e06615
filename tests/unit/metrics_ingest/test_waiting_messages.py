"""Messages that wait and are folded together leave the windows that each message, series by series, would leave."""

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.events.node.usage import PodUsage, Series, UsageSample
from cotenant_metrics_ingest.means import digests
from cotenant_metrics_ingest.samples import samples_of
from cotenant_metrics_ingest.slots import encode_ended, settle
from cotenant_metrics_ingest.windows.node_windows import MAX_WAITING, NodeWindows, WindowSizes, fold

BEGIN_MS = 1_700_000_000_000
SIZES = (WindowSizes.of(300, (300, 600, 1800)), WindowSizes.of(60, (60, 120)))


def message(size: int, pods: tuple[str, ...], factor: int) -> UsageSample:
    """One of `size` samples a second apart; all values differ."""

    def series(number: int) -> Series:
        values = range(number * 1000 + factor, number * 1000 + factor + size)
        return Series(cpu_milli=tuple(values), memory_bytes=tuple(4096 * value for value in values))

    return UsageSample(
        node="n1",
        offsets_ms=tuple(range(-1000 * (size - 1), 1, 1000)),
        node_usage=series(1),
        system_usage=series(2),
        pods=tuple(
            PodUsage(namespace="d", name=f"p{number}", uid=uid, series=series(3 + number)) for number, uid in enumerate(pods)
        ),
    )


def state(windows: NodeWindows) -> tuple[object, ...]:
    """What a report and a restart read."""
    fold([windows])
    settle([windows.slots])
    encode_ended([windows.slots])
    return windows.slots.digest(), digests([windows.means])[0], windows.last_ms, windows.pods


messages = st.lists(
    st.tuples(st.integers(1, 40), st.lists(st.sampled_from("abc"), max_size=4), st.integers(1, 900)), min_size=1, max_size=12
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(SIZES), messages), min_size=1, max_size=3), st.integers(5_000, 45_000))
def test_messages_of_several_nodes_folded_together_equal_those_taken_series_by_series(
    nodes: list[tuple[WindowSizes, list[tuple[int, list[str], int]]]], step_ms: int
) -> None:
    together = [NodeWindows(sizes) for sizes, _ in nodes]
    plain = [NodeWindows(sizes) for sizes, _ in nodes]
    for waiting, one, (_, sent) in zip(together, plain, nodes, strict=True):
        for number, (size, pods, factor) in enumerate(sent):
            # Messages may overlap: only the newer samples count.
            sample, end_ms = message(size, tuple(pods), factor), BEGIN_MS + number * step_ms
            assert waiting.take(sample, samples_of(sample), end_ms, 0) is None
            assert one.take(sample, None, end_ms, 0) is None
    fold(together)
    assert [state(each) for each in together] == [state(each) for each in plain]


def test_a_bounded_number_of_messages_waits() -> None:
    windows = NodeWindows(SIZES[0])
    sample = message(15, ("a",), 1)
    most = 0
    for number in range(3 * MAX_WAITING):
        assert windows.take(sample, samples_of(sample), BEGIN_MS + 15_000 * number, 0) is None
        most = max(most, len(windows._waiting))
    assert most == MAX_WAITING - 1


def test_windows_of_another_size_begin_with_all_messages_of_the_old_ones() -> None:
    windows = NodeWindows(SIZES[0])
    sample = message(15, ("a",), 1)
    for number in range(5):
        assert windows.take(sample, samples_of(sample), BEGIN_MS + 15_000 * number, 0) is None
    same_width = windows.resized(WindowSizes.of(300, (300, 600)))
    assert state(same_width)[0] == state(windows)[0]
    assert state(same_width)[1] == state(windows)[1]
