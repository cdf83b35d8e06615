"""What is counted for a pod that is resized, against a node, a log and a user that are modelled plainly.

The reference knows what the pod has on its node at each moment; `next_resize` sees only the object, its own last placement and
the last report. Reports are lost by a crash before they are stored: the node then goes back to what it reported last.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.domain.resizing import Stated, next_resize
from cotenant.events.resizes import ContainerResources, PlacementResize, ResizeState, ResizeStatus

DONE, IN_PROGRESS = ResizeState.DONE, ResizeState.IN_PROGRESS
DEFERRED, INFEASIBLE = ResizeState.DEFERRED, ResizeState.INFEASIBLE


def of(cpu: int) -> Stated:
    return (ContainerResources(name="main", requests={"cpu": str(cpu)}, limits={"cpu": str(cpu)}),)


def cpu_of(resources: Stated) -> int:
    return int(resources[0].requests["cpu"])


class Plain:
    """A pod of one container on a node: who asks, who counts, who decides."""

    def __init__(self) -> None:
        self.object, self.sequence = 4, 1
        self.manifest = 4
        """That of the placement."""
        self.resize: PlacementResize | None = None
        self.report: ResizeStatus | None = None
        self.admitted = self.in_force = 4
        """On the node."""

    @property
    def counted(self) -> int:
        return self.manifest if self.resize is None else cpu_of(self.resize.counted)

    def ask(self, cpu: int) -> None:
        self.sequence += 1
        self.object = cpu

    def follow(self) -> None:
        """The scheduler stores the placement that follows from what is on the log."""
        self.resize = next_resize(self.resize, of(self.manifest), of(self.object), self.sequence, self.report)
        self.manifest = self.object

    def decide(self, state: ResizeState, *, stored: bool) -> None:
        """The node decides on the placement. An admitted resize stays in progress until it is done."""
        if self.resize is None:
            return
        last = self.report if self.report is not None and self.report.sequence == self.resize.sequence else None
        if last is not None and last.state in (DONE, INFEASIBLE):
            return
        if last is not None and last.state is IN_PROGRESS and state in (DEFERRED, INFEASIBLE):
            return
        before = self.admitted, self.in_force
        if state in (DONE, IN_PROGRESS):
            self.admitted = self.manifest
        if state is DONE:
            self.in_force = self.manifest
        assert self.counted >= max(self.admitted, self.in_force), "at the moment at which it is written"
        if not stored:
            self.admitted, self.in_force = before
            return
        applied = of(self.in_force) if self.in_force != self.admitted else ()
        self.report = ResizeStatus(sequence=self.resize.sequence, state=state, admitted=of(self.admitted), applied=applied)


ACTIONS = st.one_of(
    st.tuples(st.just("ask"), st.integers(1, 9)),
    st.tuples(st.just("follow"), st.just(0)),
    st.tuples(st.sampled_from(["report", "crash"]), st.sampled_from([DONE, IN_PROGRESS, DEFERRED, INFEASIBLE])),
)


@settings(max_examples=200)
@given(st.lists(ACTIONS, max_size=30))
def test_a_placement_counts_at_least_what_the_pod_has_and_at_rest_exactly_what_the_rule_says(
    actions: list[tuple[str, int | ResizeState]],
) -> None:
    pod = Plain()
    for name, argument in actions:
        if name == "ask" and not isinstance(argument, ResizeState):
            pod.ask(argument)
        elif name == "follow":
            pod.follow()
        elif isinstance(argument, ResizeState):
            pod.decide(argument, stored=name == "report")
        assert pod.counted >= max(pod.admitted, pod.in_force)
    pod.follow()
    pod.follow()
    has = max(pod.admitted, pod.in_force)
    report = pod.report
    if report is not None and (pod.resize is None or report.sequence != pod.resize.sequence):
        report = None
    if pod.resize is None:
        assert pod.counted == pod.object == has
    elif report is not None and report.state is INFEASIBLE:
        assert pod.counted == has
    elif report is not None and report.state is DEFERRED:
        assert pod.counted == max(pod.object, has)
    else:
        assert pod.counted >= max(pod.object, has)
