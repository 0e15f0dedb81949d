// SPDX-License-Identifier: Apache-2.0
//
// chooser: see chooser.hpp.
#include "chooser.hpp"

#include <algorithm>

#include "device.hpp"

namespace sim {
namespace {

constexpr uint32_t kAbandonOneIn = 600;  // choices
constexpr uint32_t kMoveOneIn = 80;

}  // namespace

Chooser::Chooser(const World &world, uint64_t seed)
    : world_(&world),
      rng_(mix(seed, 0xC4005E), choice_tape),
      limit_rng_(mix(seed, 0x11317E), choice_tape),
      fault_rng_(mix(seed, 0xFA0175), choice_tape),
      lost_rng_(mix(seed, 0x1057DE), choice_tape),
      flood_rng_(mix(seed, 0xF100DE), choice_tape),
      move_rng_(mix(seed, 0x305EDE), choice_tape),
      host_rng_(mix(seed, 0x405FDE), choice_tape),
      tier_rng_(mix(seed, 0x71E2DE), choice_tape),
      lease_rng_(mix(seed, 0x1EA5ED), choice_tape),
      partial_rng_(mix(seed, 0x9A271AD), choice_tape),
      at_once_rng_(mix(seed, 0xA70CED), choice_tape),
      lone_rng_(mix(seed, 0x10E5D), choice_tape) {
    fail_percent_ = on(Feature::fail) ? rng_.range(1, 30) : 0;
    abort_percent_ = on(Feature::abort) ? rng_.range(1, 30) : 0;
    end_percent_ = rng_.range(2, 25);
    finish_percent_ = rng_.range(20, 100);
    bad_percent_ = on(Feature::refuse) ? rng_.range(0, 6) : 0;
    side_percent_ = rng_.range(10, 60);
    long_percent_ = rng_.range(5, 60);
    advance_percent_ = rng_.range(5, 60);
    limit_percent_ = limit_rng_.range(10, 90);
    fault_percent_ = fault_rng_.range(1, 25);
    lost_percent_ = lost_rng_.range(1, 6);
    flood_percent_ = flood_rng_.range(10, 60);
    recall_percent_ = host_rng_.range(0, 80);
    recall_most_ = host_rng_.range(1, 8);
    tier_percent_ = tier_rng_.range(10, 70);
    store_percent_ = tier_rng_.percent(40) ? 0 : tier_rng_.range(2, 60);
    load_percent_ = tier_rng_.range(40, 100);
    lease_percent_ = lease_rng_.range(10, 70);
    revisit_percent_ = partial_rng_.range(10, 70);
    revisit_most_ = partial_rng_.range(2, 10);
    lone_percent_ = lone_rng_.range(40, 85);
}

Op &Chooser::push(OpKind kind, std::initializer_list<uint32_t> fields) {
    Op op;
    op.kind = kind;
    std::copy(fields.begin(), fields.end(), op.f.begin());
    queue_.push_back(op);
    return queue_.back();
}

const Sequence *Chooser::any() {
    if (world_->sequences.empty()) return nullptr;
    return world_->sequences[rng_.below(world_->sequences.size())].get();
}

Op Chooser::next() {
    while (queue_.empty()) {
        if (world_->config.device != 0 && rng_.percent(advance_percent_))
            push(OpKind::advance, {rng_.below(world_->config.queues * world_->config.shards),
                                   rng_.percent(30) ? 0 : rng_.range(1, 12)});
        if (world_->config.device != 0 && on(Feature::faults) && !calm_) plant_fault();
        if (world_->config.device != 0 && on(Feature::lost) && !calm_) plant_loss();
        if (world_->config.device != 0 && on(Feature::move) && !world_->open &&
            move_rng_.below(kMoveOneIn) == 0)
            move();
        if (on(Feature::abandon) && lost_rng_.below(kAbandonOneIn) == 0)
            push(OpKind::abandon, {lost_rng_.below(2), lost_rng_.below(16)});
        if (on(Feature::cache_tier) && tier_rng_.percent(tier_percent_)) tier_op();
        if (on(Feature::leases_only)) {
            lone_op();
            continue;
        }
        if (on(Feature::leases) && lease_rng_.percent(lease_percent_)) {
            lease_op();
            continue;
        }
        if (world_->open)
            planning();
        else
            idle();
    }
    const Op op = queue_.front();
    queue_.pop_front();
    return op;
}

Op Chooser::calm() {
    calm_ = true;
    Op op;
    op.kind = OpKind::calm;
    return op;
}

void Chooser::idle() {
    if (!world_->committed.empty() &&
        (rng_.percent(finish_percent_) || world_->committed.size() >= QUIRE_UNFINISHED_STEPS))
        return finish_one();
    if (on(Feature::flood) && on(Feature::namespaces) && flood_rng_.percent(flood_percent_) &&
        flood())
        return;
    if (on(Feature::host_prefixes) && host_rng_.percent(recall_percent_)) return recall();
    if (on(Feature::partial) && partial_rng_.percent(revisit_percent_)) return revisit();
    if (rng_.percent(side_percent_)) return sequence_op();
    if (rng_.percent(4)) return cache_op();
    if (world_->sequences.empty() ||
        (world_->sequences.size() < world_->config.max_sequences && rng_.percent(25)))
        return make_sequence();
    begin_step();
}

void Chooser::planning() {
    const uint32_t pick = rng_.below(100);
    const Sequence *seq = any();
    if (pick < 12 && on(Feature::add)) {
        make_items(2);
        push(OpKind::add, {0});
    } else if (pick < 20 && on(Feature::drop) && seq != nullptr) {
        if (!world_->open->rows.empty())
            push(OpKind::drop, {world_->open->rows[rng_.below(world_->open->rows.size())].seq,
                                rng_.percent(85) ? 16u : rng_.below(3)});
        else
            push(OpKind::drop, {seq->id, 16});
    } else if (pick < 30 && seq != nullptr && (on(Feature::swap) || on(Feature::recompute))) {
        uint32_t how = rng_.below(3);
        if (!on(Feature::swap)) how = 2;
        if (!on(Feature::recompute)) how = 1;
        push(OpKind::preempt, {seq->id, how});
    } else if (pick < 36 && on(Feature::end_open)) {
        sequence_op();
    } else if (pick < 40 && on(Feature::finish_open) && !world_->committed.empty()) {
        finish_one();
    } else if (rng_.percent(abort_percent_)) {
        push(OpKind::abort, {});
    } else {
        push(OpKind::commit,
             {on(Feature::batch) && rng_.percent(70) && !world_->batches.empty() ? rng_.range(1, 3)
                                                                                 : 0});
    }
}

void Chooser::finish_one() {
    const size_t count = world_->committed.size();
    const size_t at = on(Feature::out_of_order) && rng_.percent(20) ? rng_.below(count) : 0;
    const bool failed = rng_.percent(fail_percent_) && (!world_->open || on(Feature::fail_open));
    push(OpKind::finish, {world_->committed[at].id, failed ? 1u : 0u});
}

// The n-th call from now on fails, or several, one after another or with good ones between them.
void Chooser::plant_fault() {
    if (!fault_rng_.percent(fault_percent_)) return;
    const bool flapping = fault_rng_.percent(40);
    push(OpKind::fault, {fault_rng_.below(world_->config.shards), fault_rng_.range(1, 4),
                         fault_rng_.percent(50) ? 0 : fault_rng_.range(1, 6),
                         flapping ? fault_rng_.range(2, 5) : 1,
                         fault_rng_.percent(50) ? 0 : fault_rng_.range(1, 3), fault_rng_.below(3)});
}

// A device is lost for some calls, or does not say what is done, or one of its queues hangs: until
// the next fault, which may be none.
void Chooser::plant_loss() {
    if (!lost_rng_.percent(lost_percent_)) return;
    const uint32_t shard = lost_rng_.below(world_->config.shards);
    const uint32_t pick = lost_rng_.below(100);
    if (pick < 30)
        push(OpKind::fault,
             {shard, kFaultRead, lost_rng_.below(6), lost_rng_.range(1, 20),
              lost_rng_.percent(50) ? 0 : lost_rng_.range(1, 3), lost_rng_.below(3)});
    else if (pick < 60)
        push(OpKind::fault, {shard, kFaultGone, lost_rng_.below(20), lost_rng_.range(1, 60)});
    else if (pick < 85)
        push(OpKind::fault, {shard, kFaultHang, lost_rng_.below(20), 0, lost_rng_.below(4)});
    else
        push(OpKind::fault, {shard, kFaultNone});
}

// To other devices, perhaps more or fewer; one of them may refuse allocations, work, signals or
// reads, or be lost.
void Chooser::move() {
    for (const Step &step : world_->committed)
        if (move_rng_.percent(90)) push(OpKind::finish, {step.id, 0});
    if (move_rng_.percent(70))
        for (uint32_t q = 0; q < world_->config.queues * world_->config.shards; ++q)
            push(OpKind::advance, {q, 0});
    const uint32_t kinds[] = {kFaultMemory, kFaultWork, kFaultFence, kFaultRead, kFaultGone};
    const uint32_t kind =
        on(Feature::faults) && move_rng_.percent(50) ? kinds[move_rng_.below(5)] : 0;
    push(OpKind::migrate, {move_rng_.percent(80) ? 0 : move_rng_.range(4, 60), 0, 0,
                           move_rng_.range(1, 3), move_rng_.below(2), kind, move_rng_.below(8),
                           move_rng_.range(1, 20), move_rng_.below(4)});
}

void Chooser::make_sequence() {
    const Config &c = world_->config;
    const Namespace &ns = world_->namespaces[rng_.below(world_->namespaces.size())];
    const uint32_t adapter = on(Feature::keys) && rng_.percent(30) ? rng_.range(1, 2) : 0;
    const uint32_t salt = on(Feature::keys) && rng_.percent(15) ? rng_.range(1, 2) : 0;
    const uint32_t spans = on(Feature::spans) && rng_.percent(30) ? rng_.range(1, 6) : 0;
    const uint32_t cross =
        c.cross() && rng_.percent(50) ? rng_.range(1, 2 * c.block_tokens + 1) : 0;
    uint32_t doc = rng_.percent(85) ? rng_.below(c.documents) : 1000 + next_seq_;
    if (on(Feature::partial) && partial_rng_.percent(50)) doc = leaving_document();
    uint32_t space = ns.id;
    if (on(Feature::flood) && on(Feature::namespaces) && flood_rng_.percent(85)) space = flooder_;
    push(OpKind::create, {next_seq_++, space, adapter, salt, spans,
                          on(Feature::priority) ? rng_.below(4) : 2, cross, doc});
}

// One namespace sends prompt after prompt, most of them long and new, and holds what it has. The
// others have quotas or not, and ask again for what they had cached. False: nothing to do.
bool Chooser::flood() {
    const Config &c = world_->config;
    if (world_->namespaces.size() < 3 && on(Feature::quota)) {
        if (flood_rng_.percent(70)) flooder_ = next_ns_;
        const uint32_t most = std::max(4u, c.pool_blocks());
        push(OpKind::ns_create,
             {next_ns_++, flood_rng_.below(2),
              flood_rng_.percent(70) ? flood_rng_.range(most / 4, most / 2 + 1) : 0});
        return true;
    }
    const Sequence *quiet = nullptr;
    for (const auto &seq : world_->sequences)
        if (seq->ns != flooder_ && seq->computed == 0) quiet = seq.get();
    if (quiet != nullptr && flood_rng_.percent(30)) {
        push(OpKind::probe, {quiet->id, quiet->doc, 2 * c.block_tokens});
        return true;
    }
    if (world_->sequences.size() >= c.max_sequences) return false;
    const uint32_t id = next_seq_++;
    const uint32_t doc = flood_rng_.percent(70) ? 1000 + id : flood_rng_.below(c.documents);
    push(OpKind::create, {id, flooder_, 0, 0, 0, 2, 0, doc});
    push(OpKind::item, {id, flood_rng_.range(1, c.max_tokens), doc});
    push(OpKind::begin, {next_step_++, flood_rng_.below(c.queues),
                         on(Feature::may_preempt) && flood_rng_.percent(50) ? 1u : 0u,
                         on(Feature::swap) ? flood_rng_.below(3) : 2});
    return true;
}

// A prompt that was there before, more often than not: its blocks come back from where they were
// evicted to. Where there is no room for a sequence, one ends and leaves its blocks cached.
void Chooser::recall() {
    const Config &c = world_->config;
    const size_t live = world_->sequences.size();
    if (live >= std::min(c.max_sequences, recall_most_)) {
        for (const auto &seq : world_->sequences)
            if (host_rng_.percent(50)) push(OpKind::end, {seq->id, host_rng_.percent(3)});
        return;
    }
    const uint32_t id = next_seq_++;
    const uint32_t space =
        world_->namespaces[host_rng_.percent(80) ? 0 : host_rng_.below(world_->namespaces.size())]
            .id;
    const uint32_t doc = host_rng_.percent(90) ? host_rng_.below(c.documents) : 1000 + id;
    push(OpKind::create, {id, space, 0, 0, 0, 2, 0, doc});
    push(OpKind::item, {id, host_rng_.range(1, c.max_tokens), doc});
    push(OpKind::begin, {next_step_++, host_rng_.below(c.queues),
                         on(Feature::may_preempt) && host_rng_.percent(30) ? 1u : 0u,
                         on(Feature::swap) ? host_rng_.below(3) : 2});
    if (host_rng_.percent(60)) push(OpKind::commit, {0});
    if (host_rng_.percent(50)) push(OpKind::finish, {next_step_ - 1, 0});
    if (host_rng_.percent(40)) push(OpKind::end, {id, 0});
}

void Chooser::make_items(uint32_t most) {
    if (world_->sequences.empty()) return;
    const uint32_t count = rng_.below(most + 1);
    std::vector<const Sequence *> order;
    for (const auto &seq : world_->sequences)
        if (!seq->has_item && (!seq->in_step || rng_.percent(10))) order.push_back(seq.get());
    // Mostly oldest first, as step.h asks.
    if (rng_.percent(30))
        for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng_.below(i)]);
    uint32_t taken = 0;
    for (const Sequence *seq : order) {
        if (taken == count) break;
        if (rng_.percent(40) && order.size() > count) continue;
        if (seq->drafts != 0 && rng_.percent(90)) {
            if (!world_->open) {
                const bool path = on(Feature::tree) && (!seq->parents.empty() || rng_.percent(30));
                if (path)
                    push(OpKind::accept_path, {seq->id, rng_.below(1u << 16)});
                else
                    push(OpKind::accept, {seq->id, rng_.below(seq->drafts + 1)});
            }
            if (rng_.percent(95)) continue;
        }
        make_item(*seq);
        ++taken;
    }
}

void Chooser::make_item(const Sequence &seq) {
    const Config &c = world_->config;
    if (seq.load.live && tier_rng_.percent(85)) {
        push(OpKind::item, {}) = seq.load.op;
        return;
    }
    const uint32_t left = c.max_tokens - std::min(c.max_tokens, seq.known());
    uint32_t count = 1;
    if (seq.known() == 0 || rng_.percent(long_percent_))
        count = rng_.range(1, std::min(left, seq.known() == 0 ? c.max_tokens : 2 * c.block_tokens));
    if (seq.known() > seq.computed && rng_.percent(60)) count = 0;
    count = std::min(count, left);
    uint32_t doc = seq.doc;
    if (rng_.percent(6)) doc = rng_.percent(50) ? rng_.below(c.documents) : 2000 + rng_.below(1000);
    uint32_t max = on(Feature::chunks) && rng_.percent(25) ? rng_.range(1, 2 * c.block_tokens) : 0;
    uint32_t drafts = 0;
    uint32_t tree = 0;
    uint32_t ahead = 0;
    if (on(Feature::draft) && count > 0 && rng_.percent(35)) {
        count = std::min(left, count + rng_.below(5));
        drafts = rng_.range(1, std::min(count, 6u));
        max = 0;
        if (on(Feature::tree) && rng_.percent(60)) tree = rng_.range(1, 1u << 16);
    }
    if (on(Feature::ahead) && rng_.percent(25) && left > count) {
        ahead = rng_.range(1, std::min(left - count, c.block_tokens + 2));
        max = 0;
    }
    const uint32_t unknown =
        on(Feature::unknown) && rng_.percent(30) && (drafts == 0 || rng_.percent(10))
            ? rng_.range(0, std::min(count, 3u))
            : 0;
    const uint32_t bad = rng_.percent(bad_percent_) ? rng_.range(1, 10) : 0;
    if (count == 0 && seq.known() == seq.computed && rng_.percent(90)) return;
    const uint32_t bits = tree != 0 && on(Feature::bits) && rng_.percent(40);
    Op &item =
        push(OpKind::item, {seq.id, count, doc, max, drafts, ahead, tree, unknown, bad, bits});
    if (on(Feature::limits)) limit_item(seq, item);
    if (on(Feature::cache_tier)) item.f[11] = tier_rng_.percent(load_percent_);
}

// Draws how much an item may find: mostly where it counts, for a sequence with nothing computed.
void Chooser::limit_item(const Sequence &seq, Op &item) {
    const uint32_t block = world_->config.block_tokens;
    if (item.f[8] == 0 && limit_rng_.percent(bad_percent_)) item.f[8] = kBadReserved;
    if (!limit_rng_.percent(seq.computed == 0 ? limit_percent_ : limit_percent_ / 4)) return;
    const uint32_t pick = limit_rng_.below(100);
    if (pick < 20)
        item.f[10] = QUIRE_NO_HITS;
    else if (pick < 30)
        item.f[10] = limit_rng_.range(1, block);
    else if (pick < 40)  // a limit like any other, and more than any sequence has
        item.f[10] = QUIRE_NO_HITS - limit_rng_.range(1, 2 * block);
    else if (pick < 60)
        item.f[10] = block * limit_rng_.range(1, world_->config.max_tokens / block);
    else
        item.f[10] = limit_rng_.range(1, world_->config.max_tokens);
}

void Chooser::begin_step() {
    make_items(rng_.percent(20) ? 8 : 4);
    push(OpKind::begin, {next_step_++, rng_.below(world_->config.queues),
                         on(Feature::may_preempt) && rng_.percent(50) ? 1u : 0u,
                         on(Feature::swap) ? rng_.below(3) : 2});
}

void Chooser::sequence_op() {
    const Sequence *seq = any();
    if (seq == nullptr) return make_sequence();
    const uint32_t pick = rng_.below(100);
    if (pick < end_percent_) {
        push(OpKind::end, {seq->id, rng_.percent(25)});
    } else if (pick < 40 && on(Feature::fork)) {
        push(OpKind::fork, {seq->id, rng_.percent(50) ? seq->known() : rng_.below(seq->known() + 1),
                            next_seq_++});
    } else if (pick < 50 && on(Feature::truncate)) {
        push(OpKind::truncate, {seq->id, rng_.below(seq->known() + 1)});
    } else if (pick < 65 && (seq->drafts != 0 || seq->ahead != 0)) {
        if (on(Feature::tree) && rng_.percent(50))
            push(OpKind::accept_path, {seq->id, rng_.below(1u << 16), rng_.percent(bad_percent_)});
        else
            push(OpKind::accept,
                 {seq->id, rng_.below(seq->drafts + seq->ahead + 1 + rng_.percent(bad_percent_))});
    } else if (pick < 75 && on(Feature::unknown)) {
        const uint32_t from = seq->first_unknown();
        if (from == seq->known() && !rng_.percent(bad_percent_)) return;
        uint32_t count = 0;
        while (from + count < seq->known() && seq->unknown[from + count]) ++count;
        push(OpKind::set_tokens,
             {seq->id, from,
              rng_.percent(70) ? count : rng_.range(1, count + rng_.percent(bad_percent_))});
    } else if (pick < 85 && on(Feature::probe)) {
        push(OpKind::probe, {seq->id, seq->doc, rng_.below(2 * world_->config.block_tokens + 4)});
    } else if (pick < 85 + bad_percent_) {
        push(OpKind::refuse, {rng_.below(16), rng_.below(8), rng_.below(1u << 16)});
    }
}

void Chooser::cache_op() {
    const Config &c = world_->config;
    const uint32_t pick = rng_.below(100);
    if (pick < 30 && on(Feature::namespaces) && world_->namespaces.size() < 3) {
        push(OpKind::ns_create, {next_ns_++, rng_.below(2),
                                 on(Feature::quota) && rng_.percent(50) ? rng_.range(3, 20) : 0});
    } else if (pick < 45 && on(Feature::namespaces)) {
        const uint32_t id = world_->namespaces[rng_.below(world_->namespaces.size())].id;
        if (id != 0 && rng_.percent(80))
            for (const auto &seq : world_->sequences)
                if (seq->ns == id) push(OpKind::end, {seq->id, 0});
        push(OpKind::ns_destroy, {id});
    } else if (pick < 52 && on(Feature::reset)) {
        push(OpKind::reset, {});
    } else if (pick < 65 && on(Feature::migrate)) {
        while (rng_.percent(90) && queue_.size() < world_->committed.size())
            push(OpKind::finish, {world_->committed[queue_.size()].id, 0});
        const bool same = (c.flags & (1u << 2)) != 0 && rng_.percent(80);
        push(OpKind::migrate, {same || rng_.percent(30) ? 0 : rng_.range(4, 60),
                               same || c.host_blocks == 0 ? 0 : rng_.range(1, 20),
                               rng_.percent(10) ? rng_.range(1, 5) : 0});
    } else if (pick < 85 && on(Feature::batch) && world_->batches.size() < 3) {
        const bool tight = rng_.percent(30);
        const uint32_t blocks = (c.max_tokens + c.block_tokens - 1) / c.block_tokens + 1;
        push(OpKind::batch,
             {0, tight ? rng_.range(1, 4) : 16, tight ? rng_.range(1, blocks) : blocks,
              tight ? rng_.range(1, 30) : 2048, tight ? rng_.range(1, 100) : 4096,
              rng_.percent(20) ? 0u : 256u});
    } else {
        push(OpKind::audit, {});
    }
}

}  // namespace sim
