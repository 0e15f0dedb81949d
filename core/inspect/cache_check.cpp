// SPDX-License-Identifier: Apache-2.0

#include "core/inspect/cache_check.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>

namespace quire {

namespace {

// An index as messages show it: -1 for kNone.
int number(uint32_t index) { return static_cast<int>(index); }

}  // namespace

CacheCheck::CacheCheck(CacheParts *parts, quire_error *error)
    : parts_(*parts), books_(parts->books), error_(error) {
    for (Array<Named> &named : named_) named.bind(&books_.host);
    for (Array<Named> &named : host_named_) named.bind(&books_.host);
}

Status CacheCheck::wrong(const char *format, ...) const {
    va_list numbers;
    va_start(numbers, format);
    std::vsnprintf(error_->message, sizeof error_->message, format, numbers);
    va_end(numbers);
    return fail(QUIRE_E_INTERNAL, nullptr);
}

// The checks that the others rely on come first: ids in range, lists that end.
Status CacheCheck::run() {
    uint32_t group_count = books_.geometry.group_count;
    QUIRE_TRY(check_steps());
    QUIRE_TRY(check_changes());
    QUIRE_TRY(check_sequences());
    QUIRE_TRY(check_namespaces());
    QUIRE_TRY(books_.journal.check());
    bool may_be_bare = books_.geometry.any_full || books_.records.is_open();
    if (!may_be_bare) QUIRE_TRY(books_.journal.tree().check_bare());
    QUIRE_TRY(check_loads());
    QUIRE_TRY(books_.told.check());
    QUIRE_TRY(parts_.announcer.check());
    QUIRE_TRY(count_names());
    for (uint32_t p = 0; p < books_.journal.pool_count(); ++p) {
        const BlockPool *host = books_.journal.host_pool(p);
        QUIRE_TRY(check_references(p));
        QUIRE_TRY(check_host_references(p));
        QUIRE_TRY(check_owners(p));
        QUIRE_TRY(check_tenants(p));
        QUIRE_TRY(check_published(books_.journal.pool(p)));
        if (host != nullptr) QUIRE_TRY(check_published(*host));
    }
    for (uint32_t g = 0; g < group_count; ++g) {
        if (books_.geometry.groups[g].cross) continue;
        QUIRE_TRY(each_sequence([&](uint32_t i) -> Status {
            if (is_swapped(books_.sequences[i])) return Status{};
            QUIRE_TRY(check_frozen(i, g));
            QUIRE_TRY(check_tail(i, g));
            QUIRE_TRY(check_tokens(i, g));
            return check_dependence(i, g);
        }));
    }
    QUIRE_TRY(check_items());
    for (const StepRecord &record : books_.records) QUIRE_TRY(check_copies(record));
    QUIRE_TRY(check_witness());
    QUIRE_TRY(check_failures());
    return check_scopes();
}

// Each step that is not done has its record, and the open step has the next number.
Status CacheCheck::check_steps() const {
    const Timeline &timeline = books_.timeline;
    for (uint64_t step = timeline.oldest(); step < timeline.next(); ++step) {
        const StepRecord &record = books_.records[Timeline::ring_index(step)];
        bool holds = record.phase == StepPhase::committed || record.phase == StepPhase::finished;
        if (record.number != step || holds != may_run(step)) {
            return wrong("step %" PRIu64 " is not done, but its record belongs to step %" PRIu64
                         " in phase %u",
                         step, record.number, static_cast<unsigned>(record.phase));
        }
    }
    if (!books_.records.is_open()) return Status{};
    const StepRecord &open = books_.records.open();
    if (open.number == timeline.next() && open.phase == StepPhase::open) return Status{};
    return wrong("step %" PRIu64 " is open, but the next step number is %" PRIu64, open.number,
                 timeline.next());
}

// True if the sequence names the change; a lease may have several, each of which names the one
// before it.
bool CacheCheck::is_change_of(uint32_t sequence, uint64_t change) const {
    const StepRecord &record = books_.records.open();
    uint32_t at = books_.sequences[sequence].change;
    while (at > change && at < record.changes.size()) at = record.changes[at].previous;
    return at == change;
}

// Each change of the open step names its sequence, and that sequence names the change.
Status CacheCheck::check_changes() const {
    uint64_t count = 0;
    uint32_t rows = 0;
    if (books_.records.is_open()) {
        const StepRecord &record = books_.records.open();
        for (uint64_t i = 0; i < record.changes.size(); ++i) {
            const Change &change = record.changes[i];
            if (change.kind == ChangeKind::dropped) continue;
            count += change.previous == kNone ? 1 : 0;
            if (change.kind == ChangeKind::item) ++rows;
            const bool is_of_lease = change.kind == ChangeKind::lease;
            if (is_live(change.sequence) && is_change_of(change.sequence, i) &&
                books_.sequences[change.sequence].is_lease == is_of_lease) {
                continue;
            }
            return wrong("change %" PRIu64 " of step %" PRIu64
                         " belongs to sequence %u, which does not refer to it",
                         i, record.number, change.sequence);
        }
        if (rows != record.rows) {
            return wrong("step %" PRIu64 " counts %u rows, but has %u items", record.number,
                         record.rows, rows);
        }
    }
    uint64_t named = 0;
    for (uint32_t i = 0; i < books_.sequences.size(); ++i) {
        if (is_live(i) && books_.sequences[i].change != kNone) ++named;
    }
    if (named == count) return Status{};
    return wrong("%" PRIu64 " sequences are in the open step, which has %" PRIu64 " changes", named,
                 count);
}

Status CacheCheck::check_table(uint32_t index, uint32_t group) const {
    const Sequence &s = books_.sequences[index];
    const GroupGeometry &geometry = books_.geometry.groups[group];
    const BlockTable &t = books_.journal.table(index, group);
    const BlockPool *host = books_.journal.host_pool(group);
    uint32_t block_count = books_.journal.pool(group).block_count();
    if (is_swapped(s)) block_count = host != nullptr ? host->block_count() : 0;
    if (t.length > t.ids.capacity) {
        return wrong("sequence %u has a table of %u blocks in group %u, but room for only %u",
                     index, t.length, group, t.ids.capacity);
    }
    for (uint32_t k = 0; k < t.length; ++k) {
        uint32_t block = t.ids.data[k];
        if ((block == kNullBlock) != geometry.is_null(k, t.null_front)) {
            return wrong("sequence %u names block %u at %u in group %u, where its gap ends at %u",
                         index, block, k, group, t.null_front);
        }
        if (block == kNullBlock || block < block_count) continue;
        return wrong("sequence %u names block %u at %u in group %u, which has %u blocks%s", index,
                     block, k, group, block_count, is_swapped(s) ? " in the host tier" : "");
    }
    if (s.state.computed == 0) return Status{};
    uint32_t least = books_.geometry.table_length(group, s.covered(), s.cross_tokens);
    if (t.length >= least) return Status{};
    return wrong("sequence %u has %u blocks in group %u, but its %u computed tokens take %u", index,
                 t.length, group, s.state.computed, least);
}

// A lease has no tokens and no gaps, and its index finds each of its blocks, which it names once.
Status CacheCheck::check_lease(uint32_t index) const {
    const Sequence &s = books_.sequences[index];
    if (HandleTable::is_of(books_.handles.handle(index), HandleType::lease) != s.is_lease)
        return wrong("sequence %u has the handle of another kind than it is", index);
    if (!s.is_lease) return Status{};
    if (s.state.known != 0 || s.state.flags != 0 || s.scope != kNone || s.state.published != 0) {
        return wrong("lease %u has %u known tokens, flags %u, or published %u blocks by itself",
                     index, s.state.known, s.state.flags, s.state.published);
    }
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const BlockTable &t = books_.journal.table(index, g);
        const LeaseIndex &found = books_.journal.lease_index(index, g);
        for (uint32_t k = 0; k < t.length; ++k) {
            if (found.find(t, t.ids.data[k]) == k && found.holds(k) != 0) continue;
            return wrong(
                "lease %u holds block %u of group %u %u times as its entry %u, but its "
                "index has entry %d for it",
                index, t.ids.data[k], g, found.holds(k), k, number(found.find(t, t.ids.data[k])));
        }
    }
    return Status{};
}

Status CacheCheck::check_sequence(uint32_t index) const {
    const Sequence &s = books_.sequences[index];
    const SequenceState &state = s.state;
    if (state.computed > state.known || state.drafts > state.known) {
        return wrong("sequence %u knows %u tokens, has computed %u, and %u of them are drafts",
                     index, state.known, state.computed, state.drafts);
    }
    uint32_t unknown = books_.token_pages.find_unknown_in(s.tokens, 0, state.known);
    if (unknown != (state.first_unknown == kNone ? state.known : state.first_unknown)) {
        return wrong("sequence %u has its first unknown token at %u, but records it at %u", index,
                     unknown, state.first_unknown);
    }
    if (s.last_step >= books_.timeline.next()) {
        return wrong("sequence %u ran in step %" PRIu64 ", but the next one is %" PRIu64, index,
                     s.last_step, books_.timeline.next());
    }
    uint32_t held = 0;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        QUIRE_TRY(check_table(index, g));
        const BlockTable &t = books_.journal.table(index, g);
        held += books_.geometry.groups[g].held_entries(t.length, t.null_front);
    }
    if (held == s.blocks_held) return check_lease(index);
    return wrong("sequence %u counts %u blocks, but its tables name %u", index, s.blocks_held,
                 held);
}

Status CacheCheck::check_sequences() const {
    return each_sequence([&](uint32_t i) -> Status { return check_sequence(i); });
}

// A block that the open step drops is touched, from the commit on, as the step's edits say; until
// then only the step itself can take it.
void CacheCheck::count_edits() {
    if (!books_.records.is_open()) return;
    const StepRecord &record = books_.records.open();
    for (const Change &change : record.changes) {
        record.each_edit(change, [&](const Edit &edit) {
            auto raise = [](Named *named, uint64_t touch) {
                if (touch > named->last_step) named->last_step = touch;
            };
            if (const auto *drop = std::get_if<DropRef>(&edit)) {
                raise(&named_[pool_of(drop->group)][drop->block], drop->touch);
            } else if (const auto *host = std::get_if<DropHost>(&edit)) {
                raise(&host_named_[pool_of(host->group)][host->block], host->touch);
            }
        });
    }
}

// The invariants in loads.hpp, except those of references.
Status CacheCheck::check_loads() const {
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < Loads::kMost; ++slot) {
        const Load &load = books_.loads[slot];
        if (load.handle == 0) continue;
        ++count;
        const bool is_of = load.sequence < books_.sequences.size() && is_live(load.sequence) &&
                           books_.handles.handle(load.sequence) == load.handle;
        if (!is_of || books_.loads.find(load.sequence, load.handle) != &load)
            return wrong("load %u belongs to sequence %u, which has another or no load", slot,
                         load.sequence);
        const bool is_due = load.awaited == 0 && !load.is_asking;
        if (load.is_ready != is_due || (load.is_taken && !load.is_ready))
            return wrong("load %u waits for %u blocks, and is %s%s", slot, load.awaited,
                         load.is_ready ? "ready" : "running", load.is_taken ? ", taken" : "");
        QUIRE_TRY(check_load(load, slot));
    }
    if (count == books_.loads.count()) return Status{};
    return wrong("there are %u loads, but %u are counted", count, books_.loads.count());
}

// Which host blocks a load has. Where a group has a window, only that none is past the load's end.
Status CacheCheck::check_load(const Load &load, uint32_t slot) const {
    const Geometry &geometry = books_.geometry;
    if (load.first >= load.length || load.length > load.stride ||
        load.names.size() != load.length ||
        load.tokens.size() != uint64_t{load.length} * geometry.span.tokens() ||
        load.blocks.size() != (load.is_asking ? 0 : uint64_t{load.stride} * geometry.group_count)) {
        return wrong("load %u is of blocks %u to %u, but has room for %u and %" PRIu64 " names",
                     slot, load.first, load.length, load.stride, load.names.size());
    }
    uint64_t held = 0;
    for (uint64_t entry = 0; entry < load.blocks.size(); ++entry) {
        const uint32_t group = load.group_of(entry), index = load.index_of(entry);
        const uint32_t block = load.blocks[entry];
        held += block != kNullBlock ? 1 : 0;
        const bool is_right = geometry.any_window ? block == kNullBlock || index < load.length
                                                  : (block != kNullBlock) == (index >= load.first &&
                                                                              index < load.length);
        if (is_right && block < books_.journal.host_pool(group)->block_count()) continue;
        return wrong("load %u of blocks %u to %u has host block %u for block %u of group %u", slot,
                     load.first, load.length, block, index, group);
    }
    const bool is_known = load.is_ready ? load.unreported == 0 : !load.is_taken;
    if (is_known && (load.awaited <= held + load.unreported || load.is_asking)) return Status{};
    return wrong("load %u waits for %u blocks, and has %" PRIu64, slot, load.awaited, held);
}

// Counts one entry of a table. All tables that name a block are of one group, which took it.
Status CacheCheck::name_block(const Sequence &s, uint32_t index, uint32_t group, uint32_t block) {
    const uint32_t p = pool_of(group);
    Named &named = is_swapped(s) ? host_named_[p][block] : named_[p][block];
    if (named.count++ == 0) named.group = group;
    if (named.group != group) {
        return wrong("%sblock %u is in a table of group %u, of sequence %u, and in one of group %u",
                     is_swapped(s) ? "host " : "", block, group, index, named.group);
    }
    named.sequence = index;
    if (s.last_step > named.last_step) named.last_step = s.last_step;
    if (is_swapped(s)) return Status{};
    const Block &b = books_.journal.pool(group)[block];
    if (b.owner == index) named.by_owner = 1;
    if (b.group == group) return Status{};
    return wrong("block %u is in a table of group %u, of sequence %u, but group %u took it", block,
                 group, index, b.group);
}

// REQUIRES: the ids of tables and loads are in range.
Status CacheCheck::count_names() {
    for (uint32_t p = 0; p < books_.journal.pool_count(); ++p) {
        const BlockPool *host = books_.journal.host_pool(p);
        if (!named_[p].create(books_.journal.pool(p).block_count())) return no_host_memory();
        if (!host_named_[p].create(host != nullptr ? host->block_count() : 0)) {
            return no_host_memory();
        }
    }
    count_edits();
    for (uint32_t slot = 0; slot < Loads::kMost; ++slot) {
        const Load &load = books_.loads[slot];
        for (uint32_t i = 0; !load.is_taken && i < load.blocks.size(); ++i) {
            if (load.blocks[i] == kNullBlock) continue;
            ++host_named_[pool_of(load.group_of(i))][load.blocks[i]].count;
        }
    }
    return each_sequence([&](uint32_t i) -> Status {
        const Sequence &s = books_.sequences[i];
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
            const BlockTable &t = books_.journal.table(i, g);
            for (uint32_t k = 0; k < t.length; ++k) {
                if (t.ids.data[k] != kNullBlock) QUIRE_TRY(name_block(s, i, g, t.ids.data[k]));
            }
        }
        return Status{};
    });
}

Status CacheCheck::check_references(uint32_t pool_number) const {
    const BlockPool &pool = books_.journal.pool(pool_number);
    for (uint32_t b = 1; b < pool.block_count(); ++b) {
        const Named &named = named_[pool_number][b];
        const uint32_t group = pool[b].group;
        if (named.count == pool[b].refs) continue;
        if (named.count == 0) {
            return wrong("block %u of group %u has %u references, but no table names it", b, group,
                         pool[b].refs);
        }
        return wrong(
            "block %u of group %u has %u references, but tables name it %u times, including that "
            "of sequence %u",
            b, group, pool[b].refs, named.count, named.sequence);
    }
    return Status{};
}

// A block of the host tier belongs to one sequence, or to one load. One that the open step filled
// for a node that was forgotten since is held until the step ends.
Status CacheCheck::check_host_references(uint32_t pool_number) const {
    const BlockPool *pool = books_.journal.host_pool(pool_number);
    if (pool == nullptr) return Status{};
    for (uint32_t b = 1; b < pool->block_count(); ++b) {
        const Named &named = host_named_[pool_number][b];
        uint32_t refs = (*pool)[b].refs;
        if (named.count == refs && refs <= 1) continue;
        const Block &block = (*pool)[b];
        bool waits = books_.records.is_open() && block.is_demoted && block.node == kNone;
        if (waits && named.count == 0 && refs == 1) continue;
        return wrong(
            "host block %u of group %u has %u references, but swapped tables name it %u times: at "
            "most one may",
            b, pool_number, refs, named.count);
    }
    return Status{};
}

// Only a sequence that holds a block may write it in place. A sequence in the open step may still
// own a block that it gave up there, until the commit.
Status CacheCheck::check_owners(uint32_t pool_number) const {
    const BlockPool &pool = books_.journal.pool(pool_number);
    for (uint32_t b = 1; b < pool.block_count(); ++b) {
        const Block &block = pool[b];
        const uint32_t group = block.group;
        if (block.state != BlockState::held || block.owner == kNone) continue;
        if (named_[pool_number][b].by_owner != 0) continue;
        if (is_live(block.owner) && books_.sequences[block.owner].change != kNone) continue;
        return wrong(
            "block %u of group %u may be written by sequence %u, which does not hold it; "
            "sequence %u does",
            b, group, block.owner, named_[pool_number][b].sequence);
    }
    return Status{};
}

// A sequence that holds a block without owning it reads only slots that the owner must not write
// any more. So a block that its holder took over, whose frozen slots are counted anew, has one
// holder.
Status CacheCheck::check_frozen(uint32_t index, uint32_t group) const {
    const BlockTable &t = books_.journal.table(index, group);
    uint32_t computed = books_.sequences[index].state.computed;
    const BlockSize size = size_of(group);
    for (uint32_t k = 0; k < t.length && size.first_token(k) < computed; ++k) {
        if (t.ids.data[k] == kNullBlock) continue;
        const Block &block = books_.journal.pool(group)[t.ids.data[k]];
        uint32_t readable = computed - size.first_token(k);
        if (readable > size.tokens()) readable = size.tokens();
        if (block.owner == index || readable <= block.frozen_slots) continue;
        return wrong(
            "block %u of group %u: sequence %u reads %u of its slots, of which %u are "
            "frozen, and %u references hold it; sequence %d may write the others",
            t.ids.data[k], group, index, readable, block.frozen_slots, block.refs,
            number(block.owner));
    }
    return Status{};
}

// A sequence that was found able to write in place still is.
Status CacheCheck::check_tail(uint32_t index, uint32_t group) const {
    const BlockTable &t = books_.journal.table(index, group);
    uint32_t computed = books_.sequences[index].state.computed;
    uint32_t slot = size_of(group).slot_of(computed);
    uint32_t at = size_of(group).block_of(computed);
    if (slot == 0 || t.writable != at) return Status{};
    const Block &block = books_.journal.pool(group)[t.ids.data[at]];
    if (books_.geometry.groups[group].recurrent && block.refs != 1) {
        return wrong(
            "block %u of group %u: sequence %u would overwrite its state, which %u tables name",
            t.ids.data[at], group, index, block.refs);
    }
    if (block.owner == index && block.node == kNone && slot >= block.frozen_slots) return Status{};
    return wrong(
        "block %u of group %u: sequence %u would write from slot %u on, but %u are frozen, "
        "sequence %d owns it, node %d names it",
        t.ids.data[at], group, index, slot, block.frozen_slots, number(block.owner),
        number(block.node));
}

// The slots that an item of the open step writes are its sequence's alone: no other sequence reads
// them, and only this step may have published their blocks.
Status CacheCheck::check_item(const Change &change, uint32_t group) const {
    const BlockTable &t = books_.journal.table(change.sequence, group);
    const StepRecord &record = books_.records.open();
    uint32_t end = change.first_position + change.compute_count;
    uint32_t position = change.first_position;
    const BlockSize size = size_of(group);
    if (books_.geometry.groups[group].state_interval != 0)  // it writes one state
        position = std::max(position, size.first_token(size.block_of(end - 1)));
    while (position < end) {
        uint32_t k = size.block_of(position);
        uint32_t slot = size.slot_of(position);
        const Block &block = books_.journal.pool(group)[t.ids.data[k]];
        const uint64_t ready = books_.journal.pool(group).origin(t.ids.data[k]).ready;
        bool is_new = block.node != kNone && ready == record.number;
        if (books_.geometry.groups[group].recurrent && slot != 0 && block.refs != 1) {
            return wrong("block %u of group %u: sequence %u overwrites its state in step %" PRIu64
                         ", and %u tables name it",
                         t.ids.data[k], group, change.sequence, record.number, block.refs);
        }
        // A dropped item may have removed the node, which the commit makes again.
        bool is_open = block.node == kNone && (slot >= block.frozen_slots || record.dropped);
        if (t.ids.data[k] == kNullBlock || block.owner != change.sequence ||
            (!is_new && !is_open)) {
            return wrong("block %u of group %u: sequence %u writes from slot %u on in step %" PRIu64
                         ", but %u are frozen, sequence %d owns it, step %" PRIu64 " published it",
                         t.ids.data[k], group, change.sequence, slot, record.number,
                         block.frozen_slots, number(block.owner), block.node != kNone ? ready : 0);
        }
        position = size.first_token(k + 1);
    }
    return Status{};
}

Status CacheCheck::check_items() const {
    if (!books_.records.is_open()) return Status{};
    for (const Change &change : books_.records.open().changes) {
        if (change.kind != ChangeKind::item) continue;
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
            if (!books_.geometry.groups[g].cross) QUIRE_TRY(check_item(change, g));
        }
    }
    return Status{};
}

// A block that a step's work may touch is given only to work after that step: the block's `touch`
// covers the step, or the last step of a sequence whose table holds the block does.
Status CacheCheck::check_touched(bool is_host, uint32_t group, uint32_t block, uint64_t step,
                                 const char *how) const {
    const BlockPool &pool = is_host ? *books_.journal.host_pool(group) : books_.journal.pool(group);
    const uint32_t p = pool_of(group);
    const Named &named = is_host ? host_named_[p][block] : named_[p][block];
    uint64_t touch = pool[block].touch;
    if (named.last_step > touch) touch = named.last_step;
    if (touch >= step) return Status{};
    return wrong("%sblock %u of group %u: step %" PRIu64
                 " %s it and may still run, but the last step recorded as touching it is %" PRIu64,
                 is_host ? "host " : "", block, group, step, how, touch);
}

Status CacheCheck::check_copies(const StepRecord &record) const {
    bool is_enqueued = record.phase == StepPhase::committed || record.phase == StepPhase::finished;
    if (!is_enqueued || !may_run(record.number)) return Status{};
    for (const quire_block_copy &copy : record.copies) {
        if (copy.kind == kVoidCopy) continue;
        QUIRE_TRY(check_touched(copy.kind == QUIRE_COPY_SWAP_IN, copy.group,
                                static_cast<uint32_t>(copy.src), record.number, "copies from"));
        QUIRE_TRY(check_touched(copy.kind == QUIRE_COPY_SWAP_OUT, copy.group,
                                static_cast<uint32_t>(copy.dst), record.number, "copies to"));
    }
    return Status{};
}

// Adds up what the open step's changes gave back, for each namespace.
void CacheCheck::count_returned() const {
    if (!books_.records.is_open()) return;
    for (const Change &change : books_.records.open().changes) {
        if (change.kind == ChangeKind::dropped) continue;
        Namespace &ns = books_.namespaces[books_.sequences[change.sequence].name_space];
        (change.kind == ChangeKind::item ? ns.counted_returned : ns.counted_given_up) +=
            change.returned;
    }
}

// No namespace holds more than its quota, whichever items of the open step are dropped.
Status CacheCheck::check_quotas() const {
    count_returned();
    const Namespaces &namespaces = books_.namespaces;
    for (uint32_t i = 0; i < namespaces.used(); ++i) {
        const Namespace &ns = namespaces[i];
        if (ns.returned != ns.counted_returned || ns.given_up != ns.counted_given_up) {
            return wrong(
                "namespace %" PRIu64 " counts %" PRIu64 " and %" PRIu64
                " blocks that the open step gave back; its changes gave %" PRIu64 " and %" PRIu64,
                ns.number, ns.returned, ns.given_up, ns.counted_returned, ns.counted_given_up);
        }
        if (ns.quota_blocks == 0 || ns.blocks_held + ns.returned <= ns.quota_blocks) continue;
        return wrong("namespace %" PRIu64 " holds %" PRIu64 " blocks, and %" PRIu64
                     " may come back to it; its quota is %u",
                     ns.number, ns.blocks_held, ns.returned, ns.quota_blocks);
    }
    return Status{};
}

// Each namespace is charged for what its sequences hold.
Status CacheCheck::check_namespaces() const {
    Namespaces &namespaces = books_.namespaces;
    for (uint32_t i = 0; i < namespaces.used(); ++i) {
        namespaces[i].counted_sequences = namespaces[i].counted_blocks = 0;
        namespaces[i].counted_leases = 0;
        namespaces[i].counted_returned = namespaces[i].counted_given_up = 0;
    }
    uint64_t leases = 0, leased = 0;
    QUIRE_TRY(each_sequence([&](uint32_t i) -> Status {
        const Sequence &s = books_.sequences[i];
        if (s.name_space >= namespaces.used()) {
            return wrong("sequence %u belongs to namespace %u, but only %u were ever created", i,
                         s.name_space, namespaces.used());
        }
        ++namespaces[s.name_space].counted_sequences;
        namespaces[s.name_space].counted_blocks += s.charged();
        namespaces[s.name_space].counted_leases += s.is_lease ? 1 : 0;
        leases += s.is_lease ? 1 : 0;
        leased += s.is_lease ? s.blocks_held : 0;
        return Status{};
    }));
    if (leases != books_.leases || leased != books_.journal.leased()) {
        return wrong("%" PRIu64 " leases hold %" PRIu64 " blocks, but %u and %" PRIu64
                     " are counted",
                     leases, leased, books_.leases, books_.journal.leased());
    }
    for (uint32_t i = 0; i < namespaces.used(); ++i) {
        const Namespace &ns = namespaces[i];
        bool same = ns.leases == ns.counted_leases && ns.sequences == ns.counted_sequences;
        if (same && ns.blocks_held == ns.counted_blocks) continue;
        return wrong("namespace %" PRIu64 " counts %" PRIu64 " sequences and %" PRIu64
                     " blocks; %" PRIu64 " live in it and hold %" PRIu64,
                     ns.number, ns.sequences, ns.blocks_held, ns.counted_sequences,
                     ns.counted_blocks);
    }
    return check_quotas();
}

}  // namespace quire
