// SPDX-License-Identifier: Apache-2.0
//
// commit: makes the open step real and executes it: copies, then all rows' writes, then all reads.
//
// Order: the step happens after all that is known to be done, after earlier work on its queue, and
// after the steps that the log's order bits name. Without a log an engine has no other knowledge,
// so there is no other order (README.md, question 1).
#include <algorithm>

#include "device.hpp"
#include "follower.hpp"
#include "leases_only.hpp"

namespace sim {

bool World::commit(const Op &op) {
    if (!open) return false;
    Batch *batch = op.f[0] == 0 || batches.empty() ? nullptr : &batches[op.f[0] % batches.size()];
    if ((config.flags & QUIRE_CACHE_ZERO_ON_FREE) != 0) open->cached_before = cached_blocks();
    quire_status status = QUIRE_E_LIMIT;
    const uint64_t struck = strikes();
    const bool may_fail = on_device();
    std::unique_ptr<Plan> planned = may_fail ? plan() : nullptr;
    if (batch != nullptr) {
        const bool over = exceeds(*open, *batch, false);
        bool near = exceeds(*open, *batch, true);
        for (const Row &row : open->rows)
            for (uint32_t g = 0; g < blocks_.size(); ++g)
                near |= table(*find(row.seq), g).size() > batch->desc.max_blocks_per_row ||
                        config.cross();
        bool running = false;
        for (const Step &step : committed) running |= step.number == batch->last_number;
        running |= on_device() && batch->last_number != 0;  // done, perhaps not noticed
        const Snapshot before = look(over || running || planned);
        status = q_->step_commit(cache_, open->handle, batch->batch, &error_);
        if (commit_refused(status, struck, planned, batch, before)) return true;
        if (over && status != QUIRE_E_BUSY)
            expect(status, {QUIRE_E_LIMIT}, "quire_step_commit into a batch that is too small");
        else
            expect(status,
                   {QUIRE_OK, running ? QUIRE_E_BUSY : QUIRE_OK, near ? QUIRE_E_LIMIT : QUIRE_OK},
                   "quire_step_commit");
        if (status < 0) {
            unchanged(before, "error-changes");
            ++tally_->batch_limits;
            batch = nullptr;
        } else {
            ++tally_->batch_commits;
        }
    }
    if (batch == nullptr) {
        const Snapshot before = look(planned != nullptr);
        status = q_->step_commit(cache_, open->handle, nullptr, &error_);
        if (commit_refused(status, struck, planned, nullptr, before)) return true;
        if (status == QUIRE_E_BUSY && !committed.empty() && config.queues > 1) {
            ++tally_->busy_answers;
            return true;
        }
        expect(status, {QUIRE_OK}, "quire_step_commit");
    }
    Step step = std::move(*open);
    open.reset();
    step.number = ++commits_;
    while (bits_used_ >> step.bit & 1) ++step.bit;
    bits_used_ |= static_cast<uint8_t>(1u << step.bit);
    for (const Undo &undo : step.undo)
        if (Sequence *seq = find(undo.before.id)) seq->in_step = seq->has_item = false;
    tally_->overlapping_steps += !committed.empty();
    if (batch != nullptr) {
        batch->last_number = step.number;
        step.batch = static_cast<int>(batch - batches.data());
    }
    begin_kernels(step);
    run_step(step);
    if (batch != nullptr) check_views(step, *batch);
    enqueue_kernels(step);
    take_unpublished(step);
    for (const Undo &undo : step.undo)
        if (Sequence *seq = find(undo.before.id)) compare(*seq, "commit");
    if (follower_) follower_->take(step);
    step.undo.clear();
    committed.push_back(std::move(step));
    check_zeroed(committed.back());
    return true;
}

void World::order(Step &step) {
    Actor &actor = step.actor;
    actor.queue = step.queue;
    actor.step = step.id;
    actor.bit = static_cast<uint8_t>(1u << step.bit);
    actor.clock = host_clock_;
    join(actor.clock, queue_clock_[step.queue]);
    if ((config.flags & QUIRE_CACHE_LOG) != 0 && !planned_) {
        uint8_t bytes[80];
        uint64_t size = 0;
        std::vector<uint8_t> log;
        expect(q_->step_log(cache_, step.handle, bytes, 0, &size, &error_), {QUIRE_S_INCOMPLETE},
               "quire_step_log");
        log.resize(size);
        expect(q_->step_log(cache_, step.handle, log.data(), size, &size, &error_), {QUIRE_OK},
               "quire_step_log");
        uint32_t bits = 0;
        std::copy(log.begin() + 56, log.begin() + 60, reinterpret_cast<uint8_t *>(&bits));
        std::copy(log.begin() + 24, log.begin() + 32, reinterpret_cast<uint8_t *>(&step.log));
        for (const Step &other : committed) {
            const uint64_t back = step.log - other.log - 1;
            const bool before = back < 8 && bits >> back & 1;
            if (other.queue == step.queue && back < 8 && !before)
                fail("log-order",
                     "step %u runs on the queue of step %u, and its log does not say so", step.id,
                     other.id);
            if (!before || other.queue == step.queue) continue;
            join(actor.clock, other.actor.clock);
            ++tally_->cross_queue_edges;
        }
    }
    if (on_device()) return actor.clock.fill(~0u);  // the device decides what is ordered
    actor.clock[step.queue] = queue_clock_[step.queue][step.queue] + 1;
    queue_clock_[step.queue] = actor.clock;
}

void World::run_step(Step &step) {
    order(step);
    run_copies(step);
    for (const Row &row : step.rows) {
        sums_.hits += row.hit;
        find_namespace(find(row.seq)->ns)->hits += row.hit;
        tenants_ran_.insert(find_namespace(find(row.seq)->ns)->handle);
    }
    sums_.swaps += step.swaps;
    sums_.recomputes += step.preemptions - step.swaps;
    for (const Undo &undo : step.undo)
        if (Sequence *seq = undo.preempted ? find(undo.before.id) : nullptr) inherit(step, *seq);
    if (on_device() && lone_) kernel_ = 1;
    set_depends(step.actor.bit);
    write_leased(step);
    kernel_ = kNoKernel;
    for (size_t i = 0; i < step.rows.size(); ++i) {
        if (on_device()) kernel_ = i + 1;
        run_row(step, step.rows[i]);
    }
    for (size_t i = 0; i < step.rows.size(); ++i) {
        if (on_device()) kernel_ = i + 1 + step.rows.size();
        read_row(step, step.rows[i]);
    }
    kernel_ = on_device() && lone_ ? 2 : kNoKernel;
    set_depends(step.actor.bit);
    read_leased(step);
    kernel_ = kNoKernel;
    for (const Row &row : step.rows) {
        asked_.erase(row.seq);
        note_first_block(*find(row.seq), row.seq);
        note_full_blocks(*find(row.seq));
    }
    // The commit may have zeroed more than the open step said.
    for (size_t i = 0; i < step.rows.size() && !planned_; ++i)
        check_tenants(step, *find(step.rows[i].seq));
    if (!planned_) check_owed(step);
    for (const Undo &undo : step.undo) {
        Sequence *seq = find(undo.before.id);
        if (seq != nullptr) seq->last_steps |= step.actor.bit;
    }
    if (lone_) lone_->committed(step);
}

void World::run_copies(Step &step) {
    const std::vector<quire_block_copy> copies = planned_ ? planned_->copies : copies_of(step);
    const auto count = static_cast<uint32_t>(copies.size());
    unsure_loaded_.clear();
    for (uint32_t i = 0; i < count; ++i) {
        const quire_block_copy &c = copies[i];
        if (c.group >= blocks_.size()) fail("copy", "copy %u is of group %u", i, c.group);
        const bool to_device = c.kind != QUIRE_COPY_SWAP_OUT;
        const bool from_device = c.kind != QUIRE_COPY_SWAP_IN;
        if ((to_device && c.dst == 0) || (from_device && c.src == 0))
            fail("copy-null", "copy %u of step %u, kind %u, touches the null block", i, step.id,
                 c.kind);
        if (to_device && (c.kind == QUIRE_COPY_TOKEN || strict)) check_copied(step, c);
        switch (c.kind) {
            case QUIRE_COPY_ON_WRITE:
                memory_.copy_block(kDevice, kDevice, c.group, source_of(c), c.dst, step.actor);
                ++tally_->copies_on_write;
                ++sums_.copies_on_write;
                break;
            case QUIRE_COPY_SWAP_OUT:
                memory_.copy_block(kHost, kDevice, c.group, c.src, c.dst, step.actor);
                ++sums_.swapped_out;
                break;
            case QUIRE_COPY_SWAP_IN:
                adopt_loaded(step, copies, i);
                memory_.copy_block(kDevice, kHost, c.group, c.src, c.dst, step.actor);
                ++sums_.swapped_in;
                break;
            case QUIRE_COPY_TOKEN:
                memory_.copy_place(kDevice, kDevice, c.group, c.src, c.src_place, c.dst,
                                   c.dst_place, step.actor);
                ++tally_->copies_token;
                break;
            case QUIRE_COPY_ZERO:
                if (!makes(kFaultDirty)) memory_.zero_block(c.group, c.dst, step.actor);
                ++tally_->zeroed_blocks;
                break;
            default:
                fail("copy", "copy %u has kind %u", i, c.kind);
        }
    }
    follow_swaps(step, copies, count);
    count_moves(step, copies);
}

// Where the blocks of its victims went: quire_step_blocks does not show that. A block of several
// victims goes to the host once for each, with the same content.
void World::follow_swaps(Step &step, const std::vector<quire_block_copy> &copies, uint32_t count) {
    std::map<std::pair<uint32_t, int32_t>, std::vector<int32_t>> went;
    for (uint32_t i = count; i-- > 0;)
        if (copies[i].kind == QUIRE_COPY_SWAP_OUT)
            went[{copies[i].group, copies[i].src}].push_back(copies[i].dst);
    for (const Undo &undo : step.undo) {
        Sequence *seq = undo.preempted ? find(undo.before.id) : nullptr;
        if (seq == nullptr || !seq->swapped) continue;
        seq->in_host = undo.tables;
        for (uint32_t g = 0; g < seq->in_host.size(); ++g)
            for (int32_t &id : seq->in_host[g]) {
                const auto at = went.find({g, id});
                id = at == went.end() ? 0 : at->second.back();
                if (at != went.end() && at->second.size() > 1) at->second.pop_back();
            }
    }
}

// The one state that a row leaves goes on from the one after the token before it, which is in the
// same block by now, and the step's hits depend on what that depends on. Blocks after it are the
// engine's to fill.
void World::write_state(const Step &step, const Row &row, uint32_t group) {
    Sequence &seq = *find(row.seq);
    const uint32_t end = row.first + row.count;
    const uint32_t at = (end - 1) / config.block_size(group);
    if (at >= table_.size() || table_[at] == 0)
        fail("table-null",
             "step %u sequence %u group %u: the block of token %u, its state's, is "
             "null",
             step.id, seq.id, group, end - 1);
    for (uint32_t i = 0; i < at; ++i)
        if (table_[i] != 0)
            fail("state-older", "step %u sequence %u group %u: block %d before that of its state",
                 step.id, seq.id, group, table_[i]);
    if (row.first != 0 &&
        memory_.read(group, table_[at], 0, step.actor) != seq.content(row.first - 1))
        fail("state", "step %u sequence %u group %u: block %d has no state after token %u", step.id,
             seq.id, group, table_[at], row.first - 1);
    const uint8_t depends = seq.depends[end - 1];
    memory_.write(group, table_[at], 0, seq.content(end - 1), depends, step.actor);
    memory_.note_token(group, table_[at], 0);
    note_slot(seq, group, table_[at], 0, end - 1, seq.content(end - 1), true);
    const uint32_t room = end + row.ahead + config.block_size(group) - 1;
    const uint32_t least = room / config.block_size(group) + config.groups[group].drafts;
    if (table_.size() < least)
        fail("state-drafts", "step %u sequence %u group %u: %zu blocks, and not %u", step.id,
             seq.id, group, table_.size(), least);
    for (uint32_t i = at + 1; i < table_.size(); ++i) {
        if (table_[i] == 0)
            fail("table-null", "step %u sequence %u group %u: block %u, for drafts, is null",
                 step.id, seq.id, group, i);
        memory_.write(group, table_[i], 0, make_content(seq.tenant, mix(step.id, i)), depends,
                      step.actor);
    }
}

void World::write_place(const Step &step, const Sequence &seq, uint32_t group, uint32_t place) {
    const uint32_t at = place / config.block_size(group);
    if (at >= table_.size() || table_[at] == 0)
        fail("table-null", "step %u sequence %u: the block of new token %u is null (table of %zu)",
             step.id, seq.id, place, table_.size());
    if (!config.recurrent(group) || place == 0) return;
    // A recurrence goes on from the state after the token before.
    const int32_t id = table_[(place - 1) / config.block_size(group)];
    if (id == 0 || memory_.read(group, id, 0, step.actor) != seq.content(place - 1))
        fail("state", "step %u sequence %u group %u: block %d has no state after token %u", step.id,
             seq.id, group, id, place - 1);
}

// What was found depends on what its blocks depend on; earlier rows have written by now.
void World::note_hits(const Step &step, Sequence &seq, const Row &row) {
    const uint32_t begin = row.first - row.hit, end = row.first + row.count;
    const uint32_t whole = whole_blocks(row.first);
    for (uint32_t p = begin; row.hit != 0 && p < row.first; ++p) {
        seq.era[p] = epoch_;
        seq.depends[p] = seq.depends_before(p);
    }
    for (uint32_t g = 0; row.hit != 0 && g < blocks_.size(); ++g) {
        if (config.groups[g].kind == QUIRE_GROUP_CROSS) continue;
        table(seq, g);
        uint8_t depends = 0;
        for (uint32_t p = begin; p < row.first; ++p) {
            int32_t id = table_[p / config.block_size(g)];
            // It was copied from there.
            if (config.one_state(g) &&
                p / config.block_size(g) == (row.first - 1) / config.block_size(g))
                id = table_[(end - 1) / config.block_size(g)];
            // The sequence's own tokens in a copy depend on the steps that its slots do.
            if (id != 0)
                depends |= p < whole ? block_depends(kDevice, g, id)
                                     : memory_.at(kDevice, g, id, config.place_of(g, p)).depends;
            seq.depends[p] |= depends;
            if (p < whole && (depends & step.actor.bit) != 0)
                tally_->hits_in_step += p + 1 == row.first;
        }
    }
}

void World::run_row(Step &step, const Row &row) {
    Sequence &seq = *find(row.seq);
    const uint32_t end = row.first + row.count;
    const uint32_t last = end + row.ahead;
    const uint32_t begin = row.first - row.hit;
    const bool was_swapped = came_back(step, seq.id);
    // What came back may be other blocks of that content, of which the oldest fell out of a window.
    if (was_swapped) std::fill(seq.made.begin(), seq.made.end(), uint8_t{0});
    inherit(step, seq);  // now, for it may have what earlier rows wrote
    seq.era.resize(last);
    seq.depends.resize(last);
    seq.made.resize(last);
    seq.beside.resize(last);
    note_found(seq, row, was_swapped);
    note_hits(step, seq, row);
    check_part(row);
    const uint8_t depends = static_cast<uint8_t>(seq.depends_before(row.first) | step.actor.bit);
    set_depends(depends);
    for (uint32_t p = row.first; p < last; ++p) {
        seq.era[p] = era_after(seq, p);
        seq.depends[p] = depends;
    }
    std::copy(seq.depends.begin() + begin, seq.depends.end(), seq.made.begin() + begin);
    seq.last_steps |= static_cast<uint8_t>(depends | step.actor.bit);
    std::vector<uint64_t> ahead;
    uint64_t link = seq.chain_before(seq.known());
    for (uint32_t i = 0; i < row.ahead; ++i)
        ahead.push_back(link = seq.link(link, seq.ahead_tokens[i], end + i));
    for (uint32_t g = 0; g < blocks_.size(); ++g) {
        table(seq, g);
        if (config.groups[g].kind == QUIRE_GROUP_CROSS) {
            for (uint32_t r = 0; r < row.cross; ++r) {
                write_place(step, seq, g, r);
                memory_.write(g, table_[r / config.block_size(g)], config.place_of(g, r),
                              seq.cross_content(r), step.actor.bit, step.actor);
                memory_.note_token(g, table_[r / config.block_size(g)], config.place_of(g, r));
                note_slot(seq, g, table_[r / config.block_size(g)], config.place_of(g, r), r,
                          seq.cross_content(r), true);
            }
            continue;
        }
        check_shared(step, row, g, last);
        if (config.one_state(g)) {
            write_state(step, row, g);
            continue;
        }
        for (uint32_t p = row.first; p < last; ++p) {
            write_place(step, seq, g, p);
            const Content content = p < end
                                        ? seq.content(p)
                                        : make_content(seq.tenant, mix(ahead[p - end], seq.era[p]));
            memory_.write(g, table_[p / config.block_size(g)], config.place_of(g, p), content,
                          depends, step.actor);
            if (p < end)
                memory_.note_token(g, table_[p / config.block_size(g)], config.place_of(g, p));
            note_slot(seq, g, table_[p / config.block_size(g)], config.place_of(g, p), p, content,
                      true);
        }
    }
}

void World::read_row(Step &step, const Row &row) {
    Sequence &seq = *find(row.seq);
    const uint32_t end = row.first + row.count;
    uint8_t depends = seq.depends_before(end);
    for (uint32_t g = 0; on_device() && g < blocks_.size(); ++g)
        if (config.groups[g].kind == QUIRE_GROUP_CROSS)
            for (const int32_t id : table(seq, g))
                if (id != 0) depends |= block_depends(kDevice, g, id);
    set_depends(depends);
    for (uint32_t g = 0; g < blocks_.size(); ++g) {
        const GroupConfig &group = config.groups[g];
        table(seq, g);
        const bool cross = group.kind == QUIRE_GROUP_CROSS;
        uint32_t from = 0;
        if (group.kind == QUIRE_GROUP_WINDOW && row.first + 1 > group.window)
            from = row.first + 1 - group.window;
        if (group.kind == QUIRE_GROUP_CHUNKED) from = row.first - row.first % group.window;
        if (group.kind == QUIRE_GROUP_RECURRENT) from = end - 1;
        const uint32_t sinks = std::min(group.sink, from);
        const uint32_t to = cross ? seq.cross_tokens : end;
        for (uint32_t p = sinks > 0 ? 0 : from; p < to; p = p + 1 == sinks ? from : p + 1) {
            const uint32_t at = p / config.block_size(g);
            if (at >= table_.size() || table_[at] == 0)
                fail("table-null", "step %u sequence %u group %u: visible token %u has no block",
                     step.id, seq.id, g, p);
            const int32_t id = table_[at];
            const uint32_t place = config.place_of(g, p);
            const Content found = memory_.read(g, id, place, step.actor);
            const Content wanted = cross ? seq.cross_content(p) : seq.content(p);
            note_slot(seq, g, id, place, p, wanted, false);
            if (found == wanted) continue;
            const Slot &slot = memory_.at(kDevice, g, id, place);
            fail(
                "content",
                "step %u sequence %u (tenant %u) group %u: token %u (of %u known, first new %u, %u "
                "hits) is read from block %d place %u, which holds %s",
                step.id, seq.id, seq.tenant, g, p, seq.known(), row.first, row.hit, id, place,
                Memory::describe(slot).c_str());
        }
    }
}

void World::check_tenants(const Step &step, const Sequence &seq) {
    for (uint32_t g = 0; g < blocks_.size(); ++g)
        for (const int32_t id : table(seq, g)) {
            if (id == 0) continue;
            const Slot *slots = memory_.block(kDevice, g, id);
            for (uint32_t place = 0; place < config.places(g); ++place) {
                const uint32_t tenant = tenant_of(slots[place].content);
                if (tenant == 0 || tenant == seq.tenant) continue;
                // Poison of another tenant: a zeroing that failed (README.md, question 2).
                const bool failed = (slots[place].content & kPoison) != 0;
                if (!failed || !tolerate("tenant-failed"))
                    fail(failed ? "tenant-failed" : "tenant",
                         "step %u sequence %u (tenant %u) group %u: block %d place %u holds %s",
                         step.id, seq.id, seq.tenant, g, id, place,
                         Memory::describe(slots[place]).c_str());
            }
        }
}

// QUIRE_CACHE_ZERO_ON_FREE: a step without items leaves zeros in each block that is neither held
// nor cached, if nothing else runs. (A step with items may free blocks of its own, for the next to
// zero.)
void World::check_zeroed(const Step &step) {
    if ((config.flags & QUIRE_CACHE_ZERO_ON_FREE) == 0 || committed.size() != 1) return;
    if (on_device()) return;
    if (!step.rows.empty() || step.preemptions != 0 || !step.leases_changed.empty()) return;
    uint64_t dirty = 0;
    std::vector<uint8_t> named;
    for (uint32_t pool = 0; pool < config.pool_count(); ++pool) {
        named.assign(blocks_[pool], 0);
        for (uint32_t g = 0; g < blocks_.size(); ++g) {
            if (config.pool_of(g) != pool) continue;
            for (const auto &seq : sequences)
                if (!seq->swapped)
                    for (const int32_t id : table(*seq, g)) named[static_cast<size_t>(id)] = 1;
        }
        for (const auto &lease : leases)
            for (const auto &[block, count] : lease->held)
                if (config.pool_of(block.first) == pool)
                    named[static_cast<size_t>(block.second)] = 1;
        for (uint32_t id = 1; id < blocks_[pool]; ++id) {
            if (named[id]) continue;
            const Slot *slots = memory_.block(kDevice, pool, static_cast<int32_t>(id));
            bool zero = true;
            const uint32_t places = memory_.places(kDevice, pool);
            for (uint32_t p = 0; p < places; ++p) zero &= slots[p].content == 0;
            dirty += !zero;
        }
    }
    // A commit that finds the tree short of nodes forgets cached blocks. They became free after its
    // copies, so the next one zeroes them.
    uint64_t cached = cached_blocks();
    if (nodes_may_be_short()) cached = std::max(cached, step.cached_before);
    if (dirty > cached)
        fail("zero-on-free", "after step %u %llu unheld blocks are not zero; %llu are cached",
             step.id, static_cast<unsigned long long>(dirty),
             static_cast<unsigned long long>(cached));
}

uint64_t World::cached_blocks() {
    quire_cache_stats s{};
    s.struct_size = sizeof s;
    expect(q_->cache_get_stats(cache_, &s, &error_), {QUIRE_OK}, "quire_cache_get_stats");
    return s.blocks_cached;
}

}  // namespace sim
