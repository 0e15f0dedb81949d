// SPDX-License-Identifier: Apache-2.0

#include "core/session/handover_send.hpp"

#include <algorithm>

#include "core/device/backend_call.hpp"

namespace quire {

namespace {

constexpr uint64_t kDefaultStaging = uint64_t{32} << 20;

}  // namespace

HandoverSend::~HandoverSend() {
    for (uint32_t i = 0; i < shard_count_; ++i) {
        if (staging_[i].address == 0) continue;
        free_memory(*staging_[i].device, staging_[i].address, staging_bytes_, QUIRE_BE_MEMORY_HOST);
    }
}

// Begin. ------------------------------------------------------------------------------------------

// The tables are those that the sequence will have: all of it but what the last token does not see.
// That is one token less than the next one does not see, so that the receiver may compute the last
// token again, for its logits.
Status HandoverSend::write_head(const SessionIdentity &as, const quire_token *tokens,
                                uint32_t count) {
    const Sequence &s = books_.sequences[sequence_];
    const Geometry &geometry = books_.geometry;
    if (!head_.begin(geometry.group_count, count)) return no_host_memory();
    SessionHeader &h = head_.header();
    h.computed = count;
    h.block_tokens = geometry.block_tokens;
    h.cross_tokens = s.cross_tokens;
    std::memcpy(h.fingerprint, as.fingerprint, sizeof h.fingerprint);
    std::memcpy(h.name_space, as.name_space, sizeof h.name_space);
    books_.journal.tree().scopes().digest(s.root, s.scope, h.keys_digest);
    quire_token *to = head_.tokens();
    if (tokens != nullptr) {
        std::memcpy(to, tokens, uint64_t{count} * sizeof *to);
    } else {
        books_.token_pages.each_page(s.tokens, count, [&](const uint32_t *page, uint32_t many) {
            std::memcpy(to, page, uint64_t{many} * sizeof *to);
            to += many;
        });
    }
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        const GroupGeometry &of = geometry.groups[g];
        SessionGroup &group = head_.group(g);
        group.length = geometry.table_length(g, count, s.cross_tokens);
        group.null_front = std::min(of.first_visible_block(count - 1), group.length);
        if (group.null_front <= of.kept_blocks) group.null_front = 0;
        h.block_count += of.held_entries(group.length, group.null_front);
    }
    uint64_t block_bytes = 0;
    QUIRE_TRY(rest_.total_bytes(&block_bytes));
    head_.seal(head_.size_bytes() + block_bytes);
    return Status{};
}

// Room for a block at least, and for no more than all of them.
Status HandoverSend::create_staging(uint64_t size_bytes, quire_error *error) {
    uint64_t all = 0;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const GroupGeometry &of = books_.geometry.groups[g];
        const auto stride = static_cast<uint64_t>(of.block_stride);
        staging_bytes_ = std::max(staging_bytes_, stride);
        all += stride * of.held_entries(head_.group(g).length, head_.group(g).null_front);
    }
    const uint64_t wanted = size_bytes != 0 ? size_bytes : kDefaultStaging;
    staging_bytes_ = std::max(staging_bytes_, std::min(all, wanted));
    for (uint32_t i = 0; i < books_.shards.count(); ++i) {
        Staging &staging = staging_[i];
        staging.device = books_.shards[i].device();
        ++shard_count_;
        void *pointer = nullptr;
        QUIRE_TRY(allocate_memory(*staging.device, staging_bytes_, QUIRE_BE_MEMORY_HOST,
                                  &staging.address, &pointer, error));
        staging.bytes = static_cast<uint8_t *>(pointer);
    }
    return Status{};
}

Status HandoverSend::begin(uint64_t handle, const SessionIdentity &as, const quire_token *tokens,
                           uint32_t token_count, uint64_t staging_bytes, quire_error *error) {
    QUIRE_TRY(books_.find_sequence(handle, &sequence_));
    Sequence &s = books_.sequences[sequence_];
    const uint32_t named = std::min(s.state.known, s.state.first_unknown);
    const uint32_t count = tokens != nullptr ? token_count : named;
    if (count == 0) return fail(QUIRE_E_ARG, "there is no token to hand over");
    if (count > books_.geometry.max_sequence_tokens) {
        return fail(QUIRE_E_LIMIT, "{} tokens are more than max_sequence_tokens {}", count,
                    books_.geometry.max_sequence_tokens);
    }
    QUIRE_TRY(write_head(as, tokens, count));
    const quire_token *all = head_.tokens();
    if (const quire_token *at = std::find(all, all + count, QUIRE_TOKEN_UNKNOWN); at != all + count)
        return fail(QUIRE_E_ARG, "token {} has no id", static_cast<uint64_t>(at - all));
    if (!books_.token_pages.equal(s.tokens, 0, all, std::min(named, count)))
        return fail(QUIRE_E_ARG, "the tokens are not those of the sequence");
    if (!cells_.create(books_.geometry, head_)) return no_host_memory();
    QUIRE_TRY(books_.copy_lanes.create(books_.shards, error));
    QUIRE_TRY(create_staging(staging_bytes, error));
    handle_ = handle;
    s.fewest_computed = kNone;
    return Status{};
}

void HandoverSend::end() {
    uint32_t sequence = 0;
    if (is_lent_ && books_.find_sequence(handle_, &sequence).ok()) {
        books_.sequences[sequence].state.flags &= ~Sequence::kLent;
        --books_.lent_sequences;
    }
    is_lent_ = false;
}

void HandoverSend::tell(quire_handover_progress *out) const {
    out->token_count = head_.header().known;
    out->is_whole = is_whole_ && out_at_ == out_.size() ? 1 : 0;
    out->cells = cells_.count();
    out->cells_done = cells_.count() - cells_.left();  // enqueued; those that wait are among them
    for (uint64_t i = first_pending_; i < pending_.size(); ++i)
        out->cells_done -= pending_[i].part.layer_count;
    out->size_bytes = given_bytes_;
}

// Checks. -----------------------------------------------------------------------------------------

Status HandoverSend::check_live(uint32_t *sequence) const {
    *sequence = books_.handles.find(handle_);
    if (*sequence != HandleTable::kNone) return Status{};
    return fail(QUIRE_E_STALE, "the sequence was ended before all of it was handed over");
}

// All that has left is still right. From now on only what comes after this can be lost.
Status HandoverSend::check_kept() {
    uint32_t &fewest = books_.sequences[sequence_].fewest_computed;
    if (fewest < sent_tokens_) {
        return fail(QUIRE_E_STALE,
                    "the sequence lost tokens that were handed over: a step failed, or it was "
                    "preempted or truncated");
    }
    fewest = kNone;
    return Status{};
}

// How many tokens must be computed before the block is complete.
uint32_t HandoverSend::end_of(uint32_t group, uint32_t index) const {
    if (books_.geometry.groups[group].cross) return 1;
    return std::min(books_.geometry.span.first_token(index + 1), head_.header().known);
}

// The staging memory. -----------------------------------------------------------------------------

void HandoverSend::forget_pending() {
    pending_.shrink(0);
    first_pending_ = ring_end_ = 0;
}

// Its occupied part begins where the oldest part lies, and ends at ring_end_.
bool HandoverSend::take_room(uint64_t size_bytes, uint64_t *at) {
    if (first_pending_ == pending_.size()) {
        forget_pending();
        *at = 0;
        return size_bytes <= staging_bytes_;
    }
    const uint64_t begin = pending_[first_pending_].at;
    if (ring_end_ > begin && size_bytes <= staging_bytes_ - ring_end_) {
        *at = ring_end_;
        return true;
    }
    *at = ring_end_ > begin ? 0 : ring_end_;
    return *at + size_bytes < begin;
}

uint64_t HandoverSend::staged_bytes(const HandoverPart &part) const {
    return part.layer_count *
           static_cast<uint64_t>(books_.geometry.groups[part.group].layer_stride);
}

// False: no room now.
bool HandoverSend::add_pending(const HandoverPart &part) {
    uint64_t at = 0;
    const uint64_t size_bytes = staged_bytes(part);
    if (!take_room(size_bytes, &at)) return false;
    if (!pending_.push_growing(Pending{part, at, 0})) return false;
    ring_end_ = at + size_bytes;
    cells_.close(part);
    sent_tokens_ = std::max(sent_tokens_, end_of(part.group, part.index));
    return true;
}

// Layers as they are computed. --------------------------------------------------------------------

void HandoverSend::add_layers_of_group(uint32_t group, uint32_t first, uint32_t end,
                                       uint32_t computed) {
    const SessionGroup &table = head_.group(group);
    const GroupGeometry &of = books_.geometry.groups[group];
    for (uint32_t index = 0; index < table.length; ++index) {
        if (of.is_null(index, table.null_front)) continue;
        if (end_of(group, index) > computed) return;
        for (uint32_t layer = cells_.next_open(group, index, first); layer < end;
             layer = cells_.next_open(group, index, layer)) {
            const uint32_t count = cells_.open_run(group, index, layer, end);
            if (!add_pending({group, index, layer, count})) return;
        }
    }
}

Status HandoverSend::layers(StepRecord *record, uint32_t first, uint32_t count,
                            quire_error *error) {
    uint32_t sequence = 0;
    QUIRE_TRY(check_live(&sequence));
    const Geometry &geometry = books_.geometry;
    if (count == 0 || first >= geometry.layer_count || count > geometry.layer_count - first) {
        return fail(QUIRE_E_ARG, "layers from {} on: the model has {}", first,
                    geometry.layer_count);
    }
    const Change *item = nullptr;
    for (const Change &change : record->changes) {
        if (change.kind == ChangeKind::item && change.handle == handle_) item = &change;
    }
    if (item == nullptr) return fail(QUIRE_E_ARG, "the sequence is not in the step");
    const Sequence &s = books_.sequences[sequence];
    if (s.last_step != record->number || s.change != kNone)
        return fail(QUIRE_E_BUSY, "the sequence is in a later step already");
    QUIRE_TRY(check_kept());
    uint32_t computed = item->first_position + item->compute_count;
    computed = std::min({computed, s.state.known - s.state.drafts, s.state.first_unknown});
    if (first_pending_ == pending_.size()) forget_pending();
    const uint64_t first_pending = pending_.size();
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        uint32_t begin = kNone, end = 0;
        for (uint32_t layer = first; layer < first + count; ++layer) {
            if (books_.places[layer].group != g) continue;
            begin = std::min(begin, books_.places[layer].layer);
            end = std::max(end, books_.places[layer].layer + 1);
        }
        if (end != 0) add_layers_of_group(g, begin, end, computed);
    }
    if (pending_.size() == first_pending) return Status{};
    return copy_pending(first_pending, record, error);
}

// The copies on a shard of the parts from `first` on: of each, the layers that it holds.
Status HandoverSend::copies_of(uint32_t shard, uint64_t first) {
    const Binding &binding = books_.shards[shard];
    copies_.shrink(0);
    for (uint64_t i = first; i < pending_.size(); ++i) {
        const HandoverPart &part = pending_[i].part;
        if (!binding.holds(part.group)) continue;
        const quire_be_pool &pool = binding.pool(part.group);
        const uint32_t held = binding.first_layer(part.group);
        const uint32_t begin = std::max(part.first_layer, held);
        const uint32_t end = std::min(part.first_layer + part.layer_count, held + pool.layer_count);
        if (begin >= end) continue;
        const auto stride = static_cast<uint64_t>(pool.layer_stride);
        const uint32_t block = books_.journal.table(sequence_, part.group).ids.data[part.index];
        quire_be_copy copy{};
        copy.dst = staging_[shard].address + pending_[i].at;
        copy.src = binding.block_address(part.group, block) + (begin - held) * stride;
        copy.size_bytes = (end - begin) * stride;
        copy.kind = QUIRE_BE_COPY_D2H;
        if (!copies_.push_growing(copy)) return no_host_memory();
    }
    return Status{};
}

// record: the step whose work comes first, and whose end waits; nullptr: all of it has run.
Status HandoverSend::copy_pending(uint64_t first, StepRecord *record, quire_error *error) {
    last_mark_ = books_.copy_lanes.next_mark();
    Status copied = enqueue_pending(first, record, error);
    if (!copied.ok()) {
        // A lane runs in order, so what it took of them does not harm the next ones.
        for (uint64_t i = first; i < pending_.size(); ++i) cells_.reopen(pending_[i].part);
        pending_.shrink(first);
        ring_end_ = 0;
        if (first_pending_ < first) {
            const Pending &last = pending_[first - 1];
            ring_end_ = last.at + staged_bytes(last.part);
        }
        return copied;
    }
    for (uint64_t i = first; i < pending_.size(); ++i) pending_[i].mark = last_mark_;
    if (record != nullptr) record->copied = last_mark_;
    return Status{};
}

Status HandoverSend::enqueue_pending(uint64_t first, StepRecord *record, quire_error *error) {
    for (uint32_t i = 0; i < shard_count_; ++i) {
        QUIRE_TRY(copies_of(i, first));
        if (copies_.empty()) continue;
        if (record != nullptr) QUIRE_TRY(books_.copy_lanes.follow(i, record->queues[i], error));
        QUIRE_TRY(books_.copy_lanes.copy(i, copies_.data(), static_cast<uint32_t>(copies_.size()),
                                         error));
    }
    return books_.copy_lanes.mark(&last_mark_, error);
}

// Bytes. ------------------------------------------------------------------------------------------

Status HandoverSend::read(uint8_t *to, uint64_t capacity, uint64_t *size_bytes,
                          quire_error *error) {
    *size_bytes = 0;
    uint32_t sequence = 0;
    if (!is_whole_) QUIRE_TRY(check_live(&sequence));
    while (*size_bytes < capacity) {
        if (out_at_ == out_.size()) {
            bool has_more = false;
            Status written = next_bytes(&has_more, error);
            // The bytes that were read count; the next call tries again.
            if (!written.ok()) return *size_bytes != 0 ? Status{} : written;
            if (!has_more) break;
        }
        const uint64_t count = std::min(capacity - *size_bytes, out_.size() - out_at_);
        std::memcpy(to + *size_bytes, out_.data() + out_at_, count);
        *size_bytes += count;
        given_bytes_ += count;
        out_at_ += count;
    }
    return Status{};
}

Status HandoverSend::begin_out(uint64_t size_bytes) {
    out_at_ = 0;
    out_.shrink(0);
    if (!out_.reserve(size_bytes)) return no_host_memory();
    out_.resize_within(size_bytes);
    return Status{};
}

Status HandoverSend::next_bytes(bool *has_more, quire_error *error) {
    *has_more = !is_whole_;
    if (is_whole_) return Status{};
    if (!has_head_) {
        QUIRE_TRY(begin_out(head_.size_bytes()));
        std::memcpy(out_.data(), head_.bytes(), head_.size_bytes());
        has_head_ = true;
        return Status{};
    }
    QUIRE_TRY(check_kept());
    if (first_pending_ != pending_.size()) return take_arrived(has_more, error);
    const bool was_lent = is_lent_;
    if (!was_lent) QUIRE_TRY(lend(has_more));
    if (!*has_more) return Status{};
    Status taken = take_rest(has_more, error);
    if (!taken.ok() && !was_lent) end();
    return taken;
}

// The oldest part, if it has arrived.
Status HandoverSend::take_arrived(bool *has_more, quire_error *error) {
    const Pending oldest = pending_[first_pending_];
    QUIRE_TRY(books_.copy_lanes.look(oldest.mark, has_more, error));
    if (!*has_more) return Status{};
    QUIRE_TRY(write_part(oldest.part, &oldest));
    ++first_pending_;
    return Status{};
}

// *is_lent: false while tokens are still to be computed or their step has not run.
Status HandoverSend::lend(bool *is_lent) {
    *is_lent = false;
    Sequence &s = books_.sequences[sequence_];
    const uint32_t count = head_.header().known;
    const bool is_used = (s.state.flags & Sequence::kLent) != 0 || s.change != kNone;
    if (is_used || s.state.drafts != 0 || !books_.timeline.done(s.last_step)) return Status{};
    if ((s.state.flags & Sequence::kUnpublished) != 0) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "the sequence publishes nothing any more (QUIRE_SEQ_UNPUBLISHED): what it "
                    "computed may be of other weights");
    }
    uint32_t computed = std::min(s.state.computed, s.state.first_unknown);
    if (s.state.move_count != 0) computed = std::min(computed, s.state.move_begin);
    if (computed < count) return Status{};
    if (!books_.token_pages.equal(s.tokens, 0, head_.tokens(), count))
        return fail(QUIRE_E_ARG, "the sequence has other tokens than those to be handed over");
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const uint32_t null_front = books_.journal.table(sequence_, g).null_front;
        if (null_front <= books_.geometry.groups[g].kept_blocks) continue;
        if (null_front <= head_.group(g).null_front) continue;
        return fail(QUIRE_E_ARG,
                    "the sequence went on, and a window has passed what was to be handed over");
    }
    s.state.flags |= Sequence::kLent;
    ++books_.lent_sequences;
    *is_lent = is_lent_ = true;
    rest_.rewind();
    return Status{};
}

// The next layers of a block that did not leave before, as many as the staging memory can hold.
bool HandoverSend::next_rest(HandoverPart *part) {
    for (; !rest_.at_end(); rest_.next()) {
        const uint32_t group = rest_.group(), index = rest_.index();
        const GroupGeometry &of = books_.geometry.groups[group];
        const uint32_t layer = cells_.next_open(group, index, 0);
        if (layer == of.layer_count) continue;
        *part = {group, index, layer, cells_.open_run(group, index, layer, of.layer_count)};
        return true;
    }
    return false;
}

Status HandoverSend::take_rest(bool *has_more, quire_error *error) {
    HandoverPart part;
    if (!next_rest(&part)) return write_tail();
    if ((books_.sequences[sequence_].state.flags & Sequence::kSwapped) != 0) {
        QUIRE_TRY(write_part(part, nullptr));
        cells_.close(part);
        return Status{};
    }
    do {
        if (!add_pending(part)) break;
    } while (next_rest(&part));
    if (first_pending_ == pending_.size()) return no_host_memory();
    QUIRE_TRY(copy_pending(0, nullptr, error));
    return take_arrived(has_more, error);
}

// staged: where its copy lies; nullptr: it is in the host tier.
Status HandoverSend::write_part(const HandoverPart &part, const Pending *staged) {
    SessionBlocks at(&books_, &head_);
    at.seek(part.group, part.index);
    CanonicalBlock form;
    QUIRE_TRY(at.describe(part.first_layer, part.layer_count, &form));
    QUIRE_TRY(begin_out(form.size_bytes()));
    form.begin(at.tokens(), out_.data());
    const uint32_t block = books_.journal.table(sequence_, part.group).ids.data[part.index];
    for (uint32_t i = 0; i < shard_count_; ++i) {
        const Binding &binding = books_.shards[i];
        if (!binding.holds(part.group)) continue;
        const uint8_t *from = staged != nullptr ? staging_[i].bytes + staged->at
                                                : binding.host_block(part.group, block);
        const uint32_t held = binding.first_layer(part.group);
        uint64_t skipped = 0;
        if (staged != nullptr && part.first_layer > held)
            skipped = (part.first_layer - held) *
                      static_cast<uint64_t>(binding.pool(part.group).layer_stride);
        each_piece(binding.part(part.group), form.part(), [&](const PartPiece &piece) {
            std::memcpy(out_.data() + piece.to, from + (piece.from - skipped), piece.size_bytes);
        });
    }
    write_scales(books_.scales, form, out_.data());
    form.seal(out_.data());
    ++parts_;
    return Status{};
}

// All parts were written, and nothing of them was taken back.
Status HandoverSend::write_tail() {
    QUIRE_ASSERT(cells_.left() == 0);
    QUIRE_TRY(begin_out(sizeof(HandoverTail)));
    HandoverTail tail{};
    tail.magic = kHandoverTailMagic;
    tail.parts = parts_;
    tail.size_bytes = given_bytes_ + sizeof tail;
    tail.head_checksum = head_.header().checksum;
    tail.checksum = tail.sum();
    std::memcpy(out_.data(), &tail, sizeof tail);
    is_whole_ = true;
    end();
    return Status{};
}

}  // namespace quire
