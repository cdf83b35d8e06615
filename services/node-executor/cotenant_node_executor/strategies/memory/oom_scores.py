"""Which processes the OOM killer prefers, by a pod's annotations.

In: annotations `koordinator.sh/oom-score-adj` and `koordinator.sh/oom-score-adj-spec` of pods. Out: `oom_score_adj` of their
containers' processes, also of those that start later or change it. Without an annotation a process keeps what it was started
with (`runtime.oom_score`, which reads the annotations too), and gets that again when the annotation is removed; koordlet
reverts nothing. Source: OOM score adjustment of koordlet, newest rule.
"""

from __future__ import annotations

from msgspec import Struct

from cotenant.api.objects.pod import Pod
from cotenant.model.by_identity import by_identity
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Cause, Desired, Strategy, StrategyDecision, on_pods
from cotenant_node_executor.targets.address import OomScore, OomScoreAttribute, Place
from cotenant_node_executor.targets.oom_annotations import annotated_score

NAME = "oom-scores"


@by_identity
def scores_of(pod: Pod) -> tuple[int | None, ...]:
    """Return the score of each container, None if the annotations state none; empty if they state none for any."""
    found = tuple([annotated_score(pod, container.name) for container in pod.spec.containers])
    return found if any(score is not None for score in found) else ()


def decide(situation: Situation, _memory: Struct | None) -> StrategyDecision:
    """The scores of all containers with an annotation."""
    values: dict[Place, tuple[Desired, ...]] = {}
    for pod in situation.pods.values():
        if not pod.manifest.metadata.annotations:
            continue
        for group, score in zip(pod.groups[1:], scores_of(pod.manifest), strict=False):
            if score is not None and group in situation.groups:
                values[OomScore(group)] = (Desired(OomScoreAttribute.ADJUSTMENT, str(score), NAME, "annotation of the pod"),)
    return StrategyDecision(values)


STRATEGY = Strategy(
    name=NAME, topic="oom-scores", sets=(OomScoreAttribute.ADJUSTMENT,), decide=decide, inputs=on_pods, cause=Cause.PLACEMENTS
)
