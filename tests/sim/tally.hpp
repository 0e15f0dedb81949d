// SPDX-License-Identifier: Apache-2.0
//
// tally: how often each thing happened, so that one sees what the mix reaches.
//
// Threads: one per thread; added up at the end.  Units: counts; names with _tokens count tokens.
#pragma once
#include <cstdint>

#include "op.hpp"

namespace sim {

// clang-format off
#define SIM_TALLY(T) \
    T(items_run) T(items_wait) T(wait_pool) T(wait_watermark) T(wait_quota) T(wait_preempted) \
    T(hits) T(hit_tokens) T(hits_in_step) T(computed_tokens) T(draft_tokens) T(tree_items) \
    T(lookahead_slots) T(unknown_tokens) T(preempt_swap) T(preempt_recompute) \
    T(preempt_by_quire) T(swap_in) T(copies_on_write) T(copies_token) T(zeroed_blocks) \
    T(dropped_items) T(dropped_dependents) T(steps_failed) T(sequences_lost) T(tokens_lost) \
    T(overlapping_steps) T(cross_queue_edges) T(accepted_drafts) T(accepted_ahead) \
    T(refused_calls) T(batch_commits) T(batch_limits) T(follower_logs) T(migrated_blocks) \
    T(probes_found) T(forks_computed) T(busy_answers) T(full_forks_limit) T(evictions) \
    T(slot_accesses) T(lost_more) T(lost_to_zeros) T(lookahead_lost) T(foreign_equal) \
    T(tolerated) T(noise_slots) T(device_works) T(short_of_nodes) \
    T(drops_probed) T(shared_in_place) T(device_seeds) T(shard_seeds) T(broken_steps) \
    T(quotas_beside) T(late_unpublished) T(given_up) T(given_up_published) T(given_up_unsure) \
    T(limits) T(limits_reached) T(limits_ignored) T(limits_of_swapped) T(limits_probed) \
    T(limits_in_windows) T(faults_struck) T(steps_undone) T(finishes_refused) T(out_of_memory) \
    T(migrations_failed) T(refusals_passed_on) T(live_seeds) T(live_steps) T(live_waits) \
    T(live_too_large) T(reads_refused) T(devices_lost) T(queues_hung) T(abandons) \
    T(queues_abandoned) T(steps_beside_abandoned) T(clock_reads) T(moves) T(moves_made) \
    T(moves_resharded) T(moves_timed_out) T(quotas_judged) T(pools_judged) T(probes_again) \
    T(host_seeds) T(blocks_demoted) T(blocks_promoted) T(host_cached_most) \
    T(levels_checked) T(published_judged) T(swaps_must_fit) T(events_read) T(told_in_store) \
    T(tier_seeds) T(tier_attached) T(tier_detach_late) T(tier_values) T(items_loading) \
    T(load_ended) T(loads_begun) T(loads_ready) T(loads_used) T(loads_missed) T(loads_failed) \
    T(loads_late) T(loads_expired) T(loads_cancelled) T(loads_short) T(tokens_loaded) \
    T(values_damaged) T(values_foreign) T(tier_written) T(tier_known) T(tier_refused) \
    T(tier_dropped) T(tier_evicted) T(store_restarts) T(store_faults) T(loads_concluded) \
    T(loads_brought) T(loads_wait) T(loads_anew) \
    T(blocks_leased) T(leases_short) T(lease_hits) T(lease_published) T(lease_duplicates) \
    T(lease_lost) T(evicted_by_call) \
    T(partial_seeds) T(partial_hits) T(partial_tokens) T(partial_sources) T(partial_limited) \
    T(partial_to_last) T(partial_judged) T(partial_due) T(partial_crowded) T(partial_unsure) \
    T(partial_probed) T(partial_siblings) \
    T(lease_finds) T(lease_found) T(pinned_at_once) T(given_at_once) T(inserts) \
    T(inserts_refused) T(inserted_blocks) T(inserted_there) T(orders_judged) T(orders_reached) \
    T(blocks_of_sizes) T(publishes_refused) T(places_together) \
    T(lone_seeds) T(lone_audits) T(lone_evicted) T(lone_evictions_judged) T(lone_shortages) \
    T(lone_forgotten) T(lone_lost_cached) T(lone_lost_forgotten) T(lone_moved) T(lone_dropped) \
    T(lone_unserved) T(lone_led) T(lone_followed) T(follower_leases) T(follower_leased) \
    T(follower_moves)
// clang-format on

struct Tally {
    uint64_t ops[static_cast<size_t>(OpKind::count)] = {};
#define SIM_COUNT(name) uint64_t name = 0;
    SIM_TALLY(SIM_COUNT)
#undef SIM_COUNT
    void add(const Tally &other) {
        for (size_t i = 0; i < static_cast<size_t>(OpKind::count); ++i) ops[i] += other.ops[i];
#define SIM_ADD(name) name += other.name;
        SIM_TALLY(SIM_ADD)
#undef SIM_ADD
    }
};

}  // namespace sim
