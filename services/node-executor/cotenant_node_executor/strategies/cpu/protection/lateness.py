"""Which services are late, by their own reports, else by how long their threads wait for a CPU.

In: the pods with a goal (`cotenant.io/latency-goal`), the newest answers of those that offer their latency
(`sampling.latency`), and the time that their threads ran and waited in the last sample. Out: the figure and whether it is
above the goal.

    own       the larger of p99Ms and oldestRequestMs > goal
    run delay waited >= WAIT_PERCENT of the time that the threads ran, and >= LEAST_WAIT_MILLI (ms of each second): a request
              takes half as long again. For pods without an endpoint, and while an endpoint does not answer.
"""

from __future__ import annotations

from msgspec import Struct

from cotenant.domain.service_latency import ANNOTATION_ENDPOINT, ANNOTATION_GOAL, parse_latency_endpoint, parse_latency_goal
from cotenant_node_executor.strategies.pod_view import PodView
from cotenant_node_executor.strategies.situation import Situation, in_best_effort_tree

WAIT_PERCENT, LEAST_WAIT_MILLI = 50, 20


class Lateness(Struct, frozen=True):
    """One service. `figure_ms`: what is compared with the goal, None where run delay is; `wait_percent`: of run time, None
    where it is unknown; `waits`: whether run delay alone would make it late; `problem`: why its own figure is missing."""

    pod: str
    group: str
    goal_ms: float
    late: bool = False
    figure_ms: float | None = None
    figure: str = ""
    wait_percent: int | None = None
    waits: bool = False
    problem: str = ""

    @property
    def text(self) -> str:
        """The figure behind a decision."""
        if self.figure_ms is not None:
            return f"{self.pod}: {self.figure} {self.figure_ms:.1f} ms, goal {self.goal_ms:g} ms"
        return f"{self.pod}: run delay {self.wait_percent or 0} % of run time, goal below {WAIT_PERCENT} %"


def lateness(situation: Situation) -> tuple[Lateness, ...]:
    """Of every pod with a goal that is not best-effort, by name."""
    pods = [
        pod for pod in situation.pods.values() if ANNOTATION_GOAL in pod.annotations and not in_best_effort_tree(pod.group)
    ]
    return tuple([_of(situation, pod) for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name))])


def worst(found: tuple[Lateness, ...]) -> Lateness | None:
    """The service with the largest excess over its goal in proportion; None if none is late."""
    late = [each for each in found if each.late]
    return max(late, key=lambda each: (each.figure_ms or 0.0) / each.goal_ms, default=None)


def problems(found: tuple[Lateness, ...]) -> tuple[str, ...]:
    """Reasons why services cannot be evaluated by their own figures."""
    return tuple([f"the own latency of pod {each.pod}: {each.problem}" for each in found if each.problem])


def _of(situation: Situation, pod: PodView) -> Lateness:
    name = f"{pod.namespace}/{pod.name}"
    try:
        goal = parse_latency_goal(pod.annotations[ANNOTATION_GOAL])
        asked = pod.annotations.get(ANNOTATION_ENDPOINT, "")
        if asked:
            parse_latency_endpoint(asked)
    except ValueError as error:
        return Lateness(name, pod.group, 0.0, problem=f"{error}; nothing is done for it")
    threads = situation.threads.get(pod.group, ())
    ran, waited = sum(each.milli for each in threads), sum(each.waited_milli for each in threads)
    percent = 100 * waited // ran if ran else None
    waits = waited >= LEAST_WAIT_MILLI and 100 * waited >= WAIT_PERCENT * ran
    reading = situation.services.get(pod.group)
    problem = ""
    if reading is not None and not reading.problem:
        measured = {"p99": reading.figures.p99_ms, "oldest request": reading.figures.oldest_request_ms}
        figure, value = max(((key, each) for key, each in measured.items() if each is not None), key=lambda each: each[1])
        return Lateness(name, pod.group, goal, value > goal, value, figure, percent, waits)
    if asked and reading is not None:
        problem = f"{reading.problem}; run delay is used"
    return Lateness(name, pod.group, goal, waits, wait_percent=percent, waits=waits, problem=problem)
