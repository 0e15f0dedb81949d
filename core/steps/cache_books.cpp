// SPDX-License-Identifier: Apache-2.0

#include "core/steps/cache_books.hpp"

namespace quire {

CacheBooks::CacheBooks(const HostAllocator &allocator)
    : host(allocator),
      journal(&host, &timeline),
      token_pages(&host, &journal.buffers()),
      shards(&host),
      handles(&host, HandleType::sequence, &g_sequence_numbers),
      scales(&host),
      places(&host),
      sequences(&host),
      namespaces(&host),
      touched(&host),
      records(&host, &shards),
      loads(&host, &journal, &token_pages),
      unsaved(&host),
      write_orders(&host),
      told(&host, &journal, &geometry, &namespaces) {}

CacheBooks::~CacheBooks() {
    for (Sequence &s : sequences) {
        token_pages.release(&s.tokens);
        journal.buffers().give_back(&s.tree);
        journal.buffers().give_back(&s.moves);
    }
}

DeviceMemory CacheBooks::memory() const {
    DeviceMemory sum = shards.memory();
    batches.add_memory(&sum);
    return sum;
}

Status CacheBooks::find_sequence(uint64_t handle, uint32_t *index) const {
    *index = handles.find(handle);
    if (*index != HandleTable::kNone) [[likely]]
        return Status{};
    return fail(QUIRE_E_STALE, "no such sequence: it was ended, or belongs to another cache");
}

Status CacheBooks::find_idle_sequence(uint64_t handle, uint32_t *index) const {
    QUIRE_TRY(find_sequence(handle, index));
    if ((sequences[*index].state.flags & Sequence::kLent) != 0) [[unlikely]]
        return fail(QUIRE_E_BUSY,
                    "the sequence is being exported or handed over: wait until that has ended");
    uint32_t change = sequences[*index].change;
    if (change != kNone) {
        bool has_item = records.open().changes[change].kind == ChangeKind::item;
        return fail(QUIRE_E_BUSY,
                    has_item ? "the sequence is in the open step: drop its item first"
                             : "the sequence was preempted in the open step: commit or abort that "
                               "step first");
    }
    return Status{};
}

Status CacheBooks::find_lease(uint64_t handle, uint32_t *index) const {
    *index = handles.find_other(handle);
    if (*index != HandleTable::kNone) [[likely]]
        return Status{};
    return fail(QUIRE_E_STALE, "no such lease: it was ended, or belongs to another cache");
}

}  // namespace quire
