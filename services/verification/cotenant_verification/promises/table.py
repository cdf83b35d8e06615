"""All promises, by number. To add one: write a small function with a docstring, and name it here."""

from __future__ import annotations

from cotenant_verification.checks.invariants import Invariant
from cotenant_verification.promises import admission as a
from cotenant_verification.promises import convergence as r
from cotenant_verification.promises import filters as t
from cotenant_verification.promises import gangs as g
from cotenant_verification.promises import metrics as m
from cotenant_verification.promises import node_lifecycle as n
from cotenant_verification.promises import placements as p
from cotenant_verification.promises import queue as h
from cotenant_verification.promises import quota_profiles as qp
from cotenant_verification.promises import quotas as q
from cotenant_verification.promises import reservations as rs
from cotenant_verification.promises import suppression as s
from cotenant_verification.promises import waiting_gangs as w
from cotenant_verification.promises import yarn_capacity as y
from cotenant_verification.promises.evicting import evictions as e
from cotenant_verification.promises.evicting import migrations as j
from cotenant_verification.promises.evicting import node_evictor as ne
from cotenant_verification.promises.evicting import preemption as v
from cotenant_verification.promises.evicting import protected as pr
from cotenant_verification.promises.log import causes as x
from cotenant_verification.promises.log import durability as k
from cotenant_verification.promises.log import memory as d
from cotenant_verification.promises.log import replay as f
from cotenant_verification.promises.log import resizes as z

PROMISES: tuple[Invariant, ...] = (
    Invariant(
        number=1,
        name="placements_fit",
        on_commit=(p.no_node_is_over_allocated, t.placements_pass_every_filter),
    ),
    Invariant(
        number=2,
        name="nobody_is_placed_twice",
        on_event=(p.nobody_is_placed_twice,),
        at_rest=(p.places_of_ended_pods_are_released,),
    ),
    Invariant(
        number=3,
        name="quotas_hold",
        on_commit=(q.admitted_pods_fit_their_quota, q.runtimes_add_up),
        at_rest=(q.shares_are_fair, qp.trees_follow_their_nodes),
    ),
    Invariant(
        number=4,
        name="batch_follows_from_its_samples",
        on_event=(m.batch_follows_from_its_samples, m.mid_leaves_services_their_requests),
    ),
    Invariant(
        number=5,
        name="stale_metrics_are_not_acted_on",
        on_event=(m.metrics_follow_the_time_of_the_log,),
        on_commit=(m.stale_metrics_evict_nobody, m.stale_metrics_take_no_pods),
    ),
    Invariant(
        number=6,
        name="evictions_stay_in_limits",
        on_event=(e.a_pod_is_evicted_once,),
        on_commit=(e.evictions_of_a_cycle_stay_in_limits, e.moves_at_once_stay_in_limits, e.orders_stay_in_limits),
    ),
    Invariant(
        number=7,
        name="moves_end",
        on_event=(e.a_move_is_begun_once,),
        at_moments=(e.moves_with_a_time_to_live_end,),
        at_rest=(e.every_move_has_ended,),
    ),
    Invariant(
        number=8,
        name="overcommitted_cpu_is_reclaimed",
        at_moments=(s.overcommitted_cpu_is_reclaimed, s.services_keep_their_latency, s.kernels_refuse_nothing),
    ),
    Invariant(number=9, name="suppression_settles", at_moments=(s.suppression_settles,)),
    Invariant(
        number=11, name="causes_explain", on_commit=(x.causes_are_earlier,), at_moments=(x.causes_lead_to_a_fact,)
    ),
    Invariant(
        number=12,
        name="it_comes_to_rest",
        on_event=(r.nobody_storms, r.waiting_reasons_do_not_flap),
        on_commit=(r.nothing_is_published_twice,),
        at_rest=(
            r.no_work_is_left,
            r.nothing_outlives_its_namespace,
            t.no_waiting_pod_fits,
            w.no_waiting_gang_fits,
            y.yarn_has_what_nodes_offer,
        ),
        when_idle=(r.idle_phase_is_quiet,),
    ),
    Invariant(
        number=13,
        name="nothing_grows",
        at_moments=(s.queues_stay_short, s.the_log_is_bounded, s.cores_are_bounded),
        when_idle=(s.cores_hold_what_is_alive,),
    ),
    Invariant(
        number=14,
        name="acknowledged_writes_stay",
        on_event=(k.an_acknowledged_revision_stays, k.an_acknowledged_object_stays),
        at_moments=(k.stale_writes_are_refused,),
        when_idle=(k.acknowledged_pods_are_there,),
    ),
    Invariant(number=15, name="decisions_can_be_recomputed", when_idle=(f.decisions_can_be_recomputed,)),
    Invariant(
        number=16,
        name="profiles_are_applied",
        on_event=(a.admitted_pods_carry_their_profile, a.invalid_profiles_are_refused),
    ),
    Invariant(
        number=17,
        name="preemption_makes_room_for_the_more_important",
        on_commit=(v.victims_are_of_lower_priority, v.victims_make_room),
    ),
    Invariant(
        number=18,
        name="memory_ends_those_who_hold_too_much",
        on_event=(d.policies_are_kept, d.restarts_wait),
        at_moments=(d.kills_hit_pods_beyond_limits, d.nobody_holds_more_than_its_limit),
        at_rest=(d.kills_are_reported, d.what_may_start_starts),
    ),
    Invariant(
        number=20,
        name="taints_evict_whom_they_should",
        on_event=(n.ready_nodes_keep_their_pods,),
        on_commit=(n.lost_nodes_are_tainted_by_rate, n.taints_evict_whom_they_should),
        at_rest=(n.tainted_nodes_are_left,),
    ),
    Invariant(number=21, name="gangs_are_placed_whole", on_commit=(g.no_half_gang_is_placed,)),
    Invariant(
        number=22,
        name="no_reservation_is_over_allocated_or_leaked",
        on_commit=(rs.no_reservation_is_over_allocated,),
        when_idle=(rs.no_reservation_leaks,),
    ),
    Invariant(
        number=23,
        name="moved_pods_have_a_place",
        on_event=(j.a_place_is_held_first,),
        at_rest=(j.places_are_given_back,),
    ),
    Invariant(
        number=24,
        name="the_queues_head_gets_its_room",
        on_commit=(h.no_room_of_the_head_is_taken,),
        at_rest=(h.the_head_starts_once_it_fits,),
    ),
    Invariant(
        number=25,
        name="node_evictions_stay_in_limits",
        on_event=(
            ne.node_evictions_stay_in_limits,
            ne.an_eviction_is_begun_once,
            ne.only_permitted_pods_are_evicted,
            ne.the_lowest_priority_is_evicted_first,
        ),
    ),
    Invariant(
        number=26,
        name="the_queues_head_starts_at_once",
        on_commit=(h.heads_start_in_the_first_state_that_they_fit,),
    ),
    Invariant(
        number=27,
        name="resizes_stay_within_their_node",
        on_event=(z.admitted_resizes_fit, z.what_is_counted_covers_what_is_admitted),
    ),
    Invariant(
        number=28,
        name="protected_pods_stay",
        on_event=(pr.protected_pods_are_chosen_by_nobody, pr.protected_pods_stay),
    ),
)
"""Promise 10, the fold, is checked when a service is idle (`replay.state_is_the_fold`), promise 19 before it decides
(`replay.deciding_changes_nothing`)."""
