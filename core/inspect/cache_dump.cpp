// SPDX-License-Identifier: Apache-2.0

#include "core/inspect/cache_dump.hpp"

namespace quire {

namespace {

const char *const kPhases[] = {"unused", "open", "committed", "finished", "stopped"};
const char *const kChanges[] = {"item", "victim", "lease", "dropped"};
const char *const kEdits[] = {"take_free",   "evict",     "add_ref", "drop_ref", "table_entry",
                              "table_shape", "publish",   "adopt",   "replace",  "owner",
                              "host_take",   "host_drop", "demote",  "promote",  "hold"};
const char *const kCopies[] = {"copy_on_write", "swap_out", "swap_in", "token", "zero"};

template <size_t N, typename Enum>
const char *name_of(const char *const (&names)[N], Enum value) {
    auto at = static_cast<size_t>(value);
    return at < N ? names[at] : "unknown";
}

// The columns that all kinds of edits share in a dump; 0 where a kind has no such field.
struct FlatEdit {
    uint64_t stamp = 0;
    uint64_t touch = 0;
    uint64_t tenant = 0;
    uint64_t new_stamp = 0;
    uint32_t owner = 0;
    uint32_t sequence = 0;
    uint32_t index = 0;
    uint32_t block = 0;
    uint32_t node = 0;
    uint32_t hint = 0;
    uint16_t frozen_slots = 0;
    uint8_t group = 0;
    bool claimed = false;
    bool unlinked = false;
    bool displaced = false;
};

FlatEdit flat(const NamedBlock &before) {
    return {.stamp = before.ready,
            .touch = before.depends,
            .owner = before.owner,
            .frozen_slots = before.frozen_slots,
            .claimed = before.is_covered};
}

template <typename Drop>
FlatEdit flat_drop(const Drop &e) {
    return {.stamp = e.stamp,
            .touch = e.touch,
            .tenant = e.old_touch,
            .new_stamp = e.new_stamp,
            .block = e.block,
            .group = e.group};
}

FlatEdit flat(const Evict &e) {
    return {.stamp = e.ready,
            .touch = e.depends,
            .tenant = e.tenant,
            .new_stamp = e.generation,
            .owner = e.owner,
            .block = e.block,
            .node = e.node,
            .hint = e.hint,
            .frozen_slots = e.frozen_slots,
            .group = e.group,
            .claimed = e.is_host,
            .unlinked = e.unlinked,
            .displaced = e.displaced};
}

FlatEdit flat(const Demote &e) {
    return {.stamp = e.ready,
            .touch = e.depends,
            .new_stamp = e.generation,
            .block = e.block,
            .node = e.node,
            .group = e.group};
}

FlatEdit flat(const Hold &e) {
    return {
        .sequence = e.lease, .index = e.entry, .block = e.block, .hint = e.holds, .group = e.group};
}

FlatEdit flat(const Edit &any_edit) {
    return std::visit(
        EditVisitor{
            [](const TakeFree &e) -> FlatEdit {
                return {.tenant = e.tenant,
                        .owner = e.owner,
                        .block = e.block,
                        .hint = e.old_group,
                        .frozen_slots = e.frozen_slots,
                        .group = e.group,
                        .claimed = e.is_read};
            },
            [](const Evict &e) { return flat(e); },
            [](const AddRef &e) -> FlatEdit {
                return {
                    .block = e.block, .hint = e.hint, .group = e.group, .claimed = e.was_cached};
            },
            [](const DropRef &e) {
                FlatEdit out = flat_drop(e);
                out.owner = e.owner;
                return out;
            },
            [](const TableEntry &e) -> FlatEdit {
                return {
                    .sequence = e.sequence, .index = e.index, .block = e.block, .group = e.group};
            },
            [](const TableShape &e) -> FlatEdit {
                return {.sequence = e.sequence,
                        .index = e.length,
                        .block = e.null_front,
                        .hint = e.blocks_held,
                        .group = e.group};
            },
            [](const PublishNode &e) -> FlatEdit { return {.node = e.node}; },
            [](const Adopt &e) {
                FlatEdit out = flat(e.before);
                out.node = e.node, out.block = e.block, out.group = e.group;
                return out;
            },
            [](const Replace &e) {
                FlatEdit out = flat(e.before);
                out.node = e.node, out.index = e.block, out.block = e.older;
                out.hint = e.hint, out.group = e.group;
                return out;
            },
            [](const ChangeOwner &e) -> FlatEdit {
                return {.owner = e.owner,
                        .block = e.block,
                        .frozen_slots = e.frozen_slots,
                        .group = e.group};
            },
            [](const TakeHost &e) -> FlatEdit {
                return {.block = e.block, .group = e.group, .claimed = e.is_read};
            },
            [](const DropHost &e) { return flat_drop(e); },
            [](const Demote &e) { return flat(e); },
            [](const Promote &e) {
                FlatEdit out = flat(e.before);
                out.node = e.node, out.index = e.block, out.block = e.older;
                out.hint = e.hint, out.group = e.group, out.new_stamp = e.generation;
                return out;
            },
            [](const Hold &e) { return flat(e); },
        },
        any_edit);
}

}  // namespace

Status dump_cache(const CacheParts &parts, bool with_tokens, char *buffer, uint64_t capacity,
                  uint64_t *size_bytes) {
    *size_bytes = CacheDump(parts, with_tokens, nullptr, 0).write();
    if (capacity < *size_bytes) return Status{QUIRE_S_INCOMPLETE, nullptr, 0, 0};
    CacheDump(parts, with_tokens, buffer, capacity).write();
    return Status{};
}

uint64_t CacheDump::write() {
    out_.open("quire dump");
    out_.number("version", kDumpVersion);
    out_.flag("tokens", with_tokens_);
    out_.close();
    write_cache();
    write_stats();
    write_ranks();
    for (const StepRecord &record : books_.records) {
        if (record.phase != StepPhase::unused) write_step(record);
    }
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        write_group(g);
        if (g >= books_.journal.pool_count()) continue;
        write_lists(books_.journal.pool(g), g, "device");
        write_blocks(books_.journal.pool(g), g, "device");
        const BlockPool *host = books_.journal.host_pool(g);
        if (host == nullptr) continue;
        write_lists(*host, g, "host");
        write_blocks(*host, g, "host");
    }
    write_tree();
    write_scopes();
    write_nodes();
    write_places();
    write_namespaces();
    for (uint32_t i = 0; i < books_.sequences.size(); ++i) {
        if (!books_.handles.is_live(i)) continue;
        write_sequence(i);
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) write_table(i, g);
    }
    write_loads();
    write_orders();
    write_told();
    out_.end();
    return out_.size_bytes();
}

void CacheDump::write_cache() {
    const Geometry &geometry = books_.geometry;
    out_.open("cache");
    out_.number("library_major", QUIRE_VERSION_MAJOR);
    out_.number("library_minor", QUIRE_VERSION_MINOR);
    out_.number("groups", geometry.group_count);
    out_.number("layers", geometry.layer_count);
    out_.number("block_tokens", geometry.block_tokens);
    out_.number("shards", books_.shards.count());
    out_.number("max_sequences", books_.sequences.size());
    out_.number("max_sequence_tokens", geometry.max_sequence_tokens);
    out_.number("watermark_blocks", parts_.needs.watermark());
    out_.number("victim", parts_.preemption.victim_order());
    out_.flag("has_memory", books_.has_memory);
    out_.flag("prefix_off", books_.prefix_off);
    out_.flag("leases_only", books_.journal.leases_only());
    out_.flag("calibrates", books_.calibrates);
    out_.flag("audits", books_.audits);
    out_.flag("scrubs", books_.journal.scrubs_);
    out_.flag("can_move", books_.can_move);
    write_state();
    out_.close();
}

void CacheDump::write_state() {
    const Timeline &timeline = books_.timeline;
    out_.number("oldest_step", timeline.oldest());
    out_.number("next_step", timeline.next());
    books_.records.is_open() ? out_.number("open_step", books_.records.open().number)
                             : out_.null("open_step");
    out_.flag("migrating", parts_.migrating);
    if (books_.is_stopped) {
        out_.words("stopped_by", parts_.why_stopped.expression);
        out_.words("stopped_in", parts_.why_stopped.file);
        out_.number("stopped_at", static_cast<uint64_t>(parts_.why_stopped.line));
    } else {
        out_.null("stopped_by");
        out_.null("stopped_in");
        out_.null("stopped_at");
    }
    out_.number("admissions", books_.admissions);
    out_.number("calls", books_.call);
    out_.number("batches", books_.batches.count());
    out_.bits("waiting_seq", parts_.prefixes.waiting().handle);
    out_.number("waiting_known", parts_.prefixes.waiting().known);
    out_.number("waiting_tokens", parts_.prefixes.waiting().token_count);
    out_.number("waiting_blocks", parts_.prefixes.waiting().blocks);
    write_tenant("only_tenant", books_.journal.only_tenant_);
    out_.flag("mixed_tenants", books_.journal.mixed_);
    out_.list("named", parts_.prefixes.named().data(), parts_.prefixes.named().size());
}

void CacheDump::write_stats() {
    const quire_cache_stats &counts = books_.counts;
    out_.open("stats");
    out_.number("prefix_cache_queries", counts.prefix_cache_queries);
    out_.number("prefix_cache_hits", counts.prefix_cache_hits);
    out_.number("preemptions_swap", counts.preemptions_swap);
    out_.number("preemptions_recompute", counts.preemptions_recompute);
    out_.number("tokens_preempted", counts.tokens_preempted);
    out_.number("evictions", books_.journal.evictions());
    out_.number("copies_on_write", counts.copies_on_write);
    out_.number("blocks_swapped_out", counts.blocks_swapped_out);
    out_.number("blocks_swapped_in", counts.blocks_swapped_in);
    out_.number("forks", counts.forks);
    out_.number("steps", counts.steps);
    out_.number("sequences_lost", counts.sequences_lost);
    out_.number("migrations", counts.migrations);
    out_.close();
}

// Writes what a leader has logged, or a follower has applied.
void CacheDump::write_ranks() {
    if (parts_.log_writer.leader().active()) {
        out_.open("leader");
        out_.number("log", parts_.log_writer.leader().number_);
        out_.bits("sum", parts_.log_writer.leader().sum_);
        out_.list("touched", books_.touched.indices().data(), books_.touched.indices().size());
        out_.close();
    }
    if (!parts_.follower.follower().active()) return;
    out_.open("follower");
    out_.number("log", parts_.follower.follower().number_);
    out_.bits("sum", parts_.follower.follower().sum_);
    out_.flag("stopped", !parts_.follower.follower().stopped().ok());
    out_.list("held", parts_.follower.follower().held(), books_.geometry.group_count);
    out_.list("host_held", parts_.follower.follower().host_held(), books_.geometry.group_count);
    out_.close();
}

void CacheDump::write_step(const StepRecord &record) {
    out_.open("step");
    out_.number("step", record.number);
    out_.word("phase", name_of(kPhases, record.phase));
    out_.number("queue", record.queue);
    record.barrier == kNoBarrier ? out_.null("barrier") : out_.number("barrier", record.barrier);
    out_.bits("handle", record.handle);
    out_.flag("has_run", books_.timeline.has_run(record.number));
    out_.number("flags", record.flags);
    out_.number("preempt", record.preempt);
    out_.number("rows", record.rows);
    out_.flag("dropped", record.dropped);
    out_.flag("failed", record.failed);
    out_.flag("in_batch", record.batch != nullptr);
    out_.open_list("waits_for");
    for (uint32_t ring = 0; ring < kMaxUnfinished; ++ring) {
        if ((record.waited >> ring & 1) != 0) out_.item(books_.records[ring].number);
    }
    out_.close_list();
    out_.open_list("fences");
    for (uint32_t i = 0; i < record.shard_count; ++i) out_.item(record.fence_values[i]);
    out_.close_list();
    out_.close();
    for (uint64_t i = 0; i < record.changes.size(); ++i) write_change(record, i);
    for (uint64_t i = 0; i < record.edits.size(); ++i) write_edit(record, i);
    for (uint64_t i = 0; i < record.copies.size(); ++i) write_copy(record, i);
    for (uint64_t i = 0; i < record.preemptions.size(); ++i) write_preemption(record, i);
    write_seen(record);
}

void CacheDump::write_sequence_state(const SequenceState &state) {
    out_.number("known", state.known);
    out_.number("computed", state.computed);
    out_.number("drafts", state.drafts);
    out_.flag("drafts_are_tree", state.drafts_are_tree);
    out_.number("lookahead", state.lookahead);
    out_.number("move_begin", state.move_begin);
    out_.number("move_count", state.move_count);
    out_.index("first_unknown", state.first_unknown);
    out_.number("published", state.published);
    out_.index("cursor_node", state.cursor.node);
    out_.number("cursor_generation", state.cursor.generation);
    out_.bits("cursor_hash", state.cursor.hash);
    out_.number("flags", state.flags);
    out_.number("preemptions", state.preemptions);
    out_.number("admitted", state.admitted);
    out_.number("resumed_step", state.resumed_step);
}

void CacheDump::write_change(const StepRecord &record, uint64_t index) {
    const Change &change = record.changes[index];
    bool is_item = change.kind == ChangeKind::item;
    out_.open("change");
    out_.number("step", record.number);
    out_.number("index", index);
    out_.word("kind", name_of(kChanges, change.kind));
    out_.number("sequence", change.sequence);
    out_.number("first_edit", change.first_edit);
    out_.number("edit_end", change.edit_end);
    out_.number("first_copy", change.first_copy);
    out_.number("copy_end", change.copy_end);
    out_.number("returned", change.returned);
    if (is_item) {  // a victim has none of these
        out_.number("first_position", change.first_position);
        out_.number("compute_count", change.compute_count);
        out_.number("valid_tokens", change.valid_tokens);
        out_.number("hit_tokens", change.hit_tokens);
        out_.number("found_tokens", change.found_tokens);
        out_.number("cross_tokens", change.cross_tokens);
        out_.number("mask_rows", change.mask_rows);
    }
    out_.open_list("pending");
    for (uint32_t ring = 0; change.has_pending && ring < kMaxUnfinished; ++ring) {
        if (change.pending_position[ring] == UINT32_MAX) continue;
        // A ring index whose step is done may be a later step's by now, or the open one's.
        uint64_t step = books_.records[ring].number;
        if (step < books_.timeline.oldest() || step >= record.number) continue;
        out_.pair(step, change.pending_position[ring]);
    }
    out_.close_list();
    if (record.phase == StepPhase::open || record.phase == StepPhase::stopped) {
        write_sequence_state(change.before);
    }
    out_.close();
}

void CacheDump::write_edit(const StepRecord &record, uint64_t index) {
    const Edit &any_edit = record.edits[index];
    FlatEdit edit = flat(any_edit);
    out_.open("edit");
    out_.number("step", record.number);
    out_.number("index", index);
    out_.word("kind", name_of(kEdits, any_edit.index()));
    out_.number("group", edit.group);
    out_.flag("claimed", edit.claimed);
    out_.flag("unlinked", edit.unlinked);
    out_.flag("displaced", edit.displaced);
    out_.number("frozen", edit.frozen_slots);
    out_.index("owner", edit.owner);
    out_.number("sequence", edit.sequence);
    out_.number("at", edit.index);
    out_.number("block", edit.block);
    out_.index("node", edit.node);
    out_.index("hint", edit.hint);
    out_.number("stamp_or_ready", edit.stamp);
    out_.bits("touch_or_depends", edit.touch);
    out_.bits("tenant_or_old_touch", edit.tenant);
    out_.number("new_stamp_or_generation", edit.new_stamp);
    out_.close();
}

void CacheDump::write_copy(const StepRecord &record, uint64_t index) {
    const quire_block_copy &copy = record.copies[index];
    out_.open("copy");
    out_.number("step", record.number);
    out_.number("index", index);
    out_.word("kind", copy.kind == kVoidCopy ? "void" : name_of(kCopies, copy.kind));
    out_.number("group", copy.group);
    out_.number("src", static_cast<uint32_t>(copy.src));
    out_.number("dst", static_cast<uint32_t>(copy.dst));
    out_.number("src_place", copy.src_place);
    out_.number("dst_place", copy.dst_place);
    out_.close();
}

void CacheDump::write_preemption(const StepRecord &record, uint64_t index) {
    const quire_preemption &preemption = record.preemptions[index];
    out_.open("preemption");
    out_.number("step", record.number);
    out_.number("index", index);
    out_.bits("seq", preemption.seq);
    out_.number("how", preemption.how);
    out_.number("chosen_by", preemption.chosen_by);
    out_.number("computed_tokens", preemption.computed_tokens);
    out_.number("blocks", preemption.blocks);
    out_.bits("for_seq", preemption.for_seq);
    out_.close();
}

// Writes what an audited cache saw the step touch.
void CacheDump::write_seen(const StepRecord &record) {
    bool is_enqueued = record.phase == StepPhase::committed || record.phase == StepPhase::finished;
    if (!books_.audits || !is_enqueued) return;
    uint64_t index = 0;
    for (const Seen &seen : parts_.witness.of(record.number)) {
        out_.open("seen");
        out_.number("step", record.number);
        out_.number("index", index++);
        out_.number("group", seen.group);
        out_.word("tier", seen.is_host ? "host" : "device");
        out_.number("block", seen.block);
        out_.index("sequence", seen.sequence);
        out_.number("read_end", seen.read_end);
        out_.number("write_begin", seen.write_begin);
        out_.number("write_end", seen.write_end);
        out_.close();
    }
}

}  // namespace quire
