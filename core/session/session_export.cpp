// SPDX-License-Identifier: Apache-2.0

#include "core/session/session_export.hpp"

#include <algorithm>

#include "core/device/backend_call.hpp"

namespace quire {

SessionExport::~SessionExport() {
    for (uint32_t i = 0; i < shard_count_; ++i) {
        Landing &landing = landings_[i];
        landing.queue.settle();
        if (landing.address != 0) {
            free_memory(*landing.device, landing.address, landing_bytes_, QUIRE_BE_MEMORY_HOST);
        }
    }
}

uint32_t SessionExport::first_id(uint32_t group) const {
    uint32_t first = 0;
    for (uint32_t g = 0; g < group; ++g) first += head_.group(g).length;
    return first;
}

// Copies what the session keeps of the sequence's books.
Status SessionExport::write_head(uint32_t computed, const SessionIdentity &as) {
    const Sequence &s = books_->sequences[sequence_];
    const Geometry &geometry = books_->geometry;
    uint32_t known = std::min(s.state.known, s.state.first_unknown);
    if (!head_.begin(geometry.group_count, known)) return no_host_memory();
    SessionHeader &h = head_.header();
    h.computed = computed;
    h.block_tokens = geometry.block_tokens;
    h.cross_tokens = s.cross_tokens;
    std::memcpy(h.fingerprint, as.fingerprint, sizeof h.fingerprint);
    std::memcpy(h.name_space, as.name_space, sizeof h.name_space);
    books_->journal.tree().scopes().digest(s.root, s.scope, h.keys_digest);
    quire_token *to = head_.tokens();
    books_->token_pages.each_page(s.tokens, known, [&](const uint32_t *tokens, uint32_t count) {
        std::memcpy(to, tokens, uint64_t{count} * sizeof *to);
        to += count;
    });
    uint64_t entries = 0;
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        const BlockTable &t = books_->journal.table(sequence_, g);
        SessionGroup &group = head_.group(g);
        group.length = computed != 0 ? geometry.table_length(g, computed, s.cross_tokens) : 0;
        group.null_front = group.length != 0 ? std::min(t.null_front, group.length) : 0;
        if (group.null_front <= geometry.groups[g].kept_blocks) group.null_front = 0;
        h.block_count += geometry.groups[g].held_entries(group.length, group.null_front);
        entries += group.length;
    }
    if (!ids_.create(entries)) return no_host_memory();
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        const BlockTable &t = books_->journal.table(sequence_, g);
        if (head_.group(g).length != 0) {
            std::memcpy(ids_.data() + first_id(g), t.ids.data,
                        uint64_t{head_.group(g).length} * sizeof(uint32_t));
        }
    }
    return Status{};
}

// Blocks that are in the host tier are read there.
Status SessionExport::create_landings(quire_error *error) {
    if (is_swapped_ || head_.header().block_count == 0) return Status{};
    landing_bytes_ = kPieceBytes;
    for (uint32_t i = 0; i < books_->shards.count(); ++i) {
        for (uint32_t g = 0; g < books_->geometry.group_count; ++g) {
            const Binding &binding = books_->shards[i];
            if (!binding.holds(g)) continue;
            landing_bytes_ =
                std::max(landing_bytes_, static_cast<uint64_t>(binding.pool(g).block_stride));
        }
    }
    for (uint32_t i = 0; i < books_->shards.count(); ++i) {
        Landing &landing = landings_[i];
        landing.device = books_->shards[i].device();
        ++shard_count_;
        QUIRE_TRY(landing.queue.create(landing.device, error));
        void *pointer = nullptr;
        QUIRE_TRY(allocate_memory(*landing.device, landing_bytes_, QUIRE_BE_MEMORY_HOST,
                                  &landing.address, &pointer, error));
        landing.bytes = static_cast<uint8_t *>(pointer);
    }
    return Status{};
}

Status SessionExport::begin(CacheBooks *books, Retreat *retreat, uint32_t sequence,
                            const SessionIdentity &as, quire_error *error) {
    books_ = books;
    sequence_ = sequence;
    Sequence &s = books->sequences[sequence];
    is_swapped_ = (s.state.flags & Sequence::kSwapped) != 0;
    uint32_t computed = std::min(s.state.computed, s.state.first_unknown);
    if (s.state.move_count != 0) computed = std::min(computed, s.state.move_begin);
    computed = retreat->whole_window_length(sequence, computed);
    QUIRE_TRY(write_head(computed, as));
    at_ = SessionBlocks(books, &head_);
    uint64_t block_bytes = 0;
    QUIRE_TRY(at_.total_bytes(&block_bytes));
    head_.seal(head_.size_bytes() + block_bytes);
    QUIRE_TRY(create_landings(error));
    s.state.flags |= Sequence::kLent;
    ++books->lent_sequences;
    return Status{};
}

void SessionExport::end() {
    books_->sequences[sequence_].state.flags &= ~Sequence::kLent;
    --books_->lent_sequences;
}

// Brings `count` blocks of a group, from table entry `index` on, into the landings.
Status SessionExport::land(uint32_t group, uint32_t index, uint32_t count, quire_error *error) {
    const uint32_t *ids = ids_.data() + first_id(group) + index;
    for (uint32_t i = 0; i < shard_count_; ++i) {
        const Binding &binding = books_->shards[i];
        if (!binding.holds(group)) continue;
        auto stride = static_cast<uint64_t>(binding.pool(group).block_stride);
        for (uint32_t b = 0; b < count; ++b) {
            quire_be_copy copy{};
            copy.dst = landings_[i].address + b * stride;
            copy.src = binding.block_address(group, ids[b]);
            copy.size_bytes = stride;
            copy.kind = QUIRE_BE_COPY_D2H;
            QUIRE_TRY(landings_[i].queue.copy(&copy, 1, error));
        }
    }
    for (uint32_t i = 0; i < shard_count_; ++i) {
        if (!books_->shards[i].holds(group)) continue;
        uint64_t arrived = 0;
        QUIRE_TRY(landings_[i].queue.mark(&arrived, error));
        QUIRE_TRY(landings_[i].queue.wait(arrived, error));
    }
    return Status{};
}

// The next blocks of one group that lie next to each other in its table, as many as fit.
Status SessionExport::fill_piece(quire_error *error) {
    const uint32_t group = at_.group(), first = at_.index();
    CanonicalBlock form;
    QUIRE_TRY(at_.describe(&form));
    uint64_t largest = form.size_bytes();
    uint64_t most = std::max<uint64_t>(1, kPieceBytes / largest);
    for (uint32_t i = 0; i < shard_count_; ++i) {
        if (!books_->shards[i].holds(group)) continue;
        auto stride = static_cast<uint64_t>(books_->shards[i].pool(group).block_stride);
        most = std::min(most, landing_bytes_ / stride);
    }
    uint32_t count = 0;
    uint64_t bytes = 0;
    SessionBlocks after = at_;
    for (; count < most && !after.at_end() && after.group() == group &&
           after.index() == first + count;
         after.next()) {
        QUIRE_TRY(after.describe(&form));
        bytes += form.size_bytes();
        ++count;
    }
    if (!piece_.reserve(bytes)) return no_host_memory();
    piece_.resize_within(bytes);
    if (!is_swapped_) QUIRE_TRY(land(group, first, count, error));
    uint8_t *to = piece_.data();
    for (uint32_t b = 0; b < count; ++b, at_.next()) {
        QUIRE_TRY(at_.describe(&form));
        form.begin(at_.tokens(), to);
        for (uint32_t i = 0; i < books_->shards.count(); ++i) {
            const Binding &binding = books_->shards[i];
            if (!binding.holds(group)) continue;
            auto stride = static_cast<uint64_t>(binding.pool(group).block_stride);
            const uint8_t *from = is_swapped_
                                      ? binding.host_block(group, ids_[first_id(group) + first + b])
                                      : landings_[i].bytes + b * stride;
            gather(binding, form, from, to);
        }
        write_scales(books_->scales, form, to);
        form.seal(to);
        to += form.size_bytes();
    }
    return Status{};
}

Status SessionExport::next(const uint8_t **bytes, uint64_t *size_bytes, quire_error *error) {
    if (!has_head_) {
        has_head_ = true;
        *bytes = head_.bytes();
        *size_bytes = head_.size_bytes();
        return Status{};
    }
    *bytes = nullptr;
    *size_bytes = 0;
    if (at_.at_end()) return Status{};
    QUIRE_TRY(fill_piece(error));
    *bytes = piece_.data();
    *size_bytes = piece_.size();
    return Status{};
}

}  // namespace quire
