// SPDX-License-Identifier: Apache-2.0
//
// tenants: namespaces: their life, what their sequences hold, and where their keys are stored.
//
// Ownership: refers to the books; owns scratch for keys.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/cache_books.hpp"
#include "core/steps/sequence_keys.hpp"

namespace quire {

class Tenants {
 public:
    explicit Tenants(CacheBooks *books)
        : books_(*books), words_(&books->host), spans_(&books->host) {}
    // key_bytes: for the default namespace's keys; 0: the default. False: no memory.
    [[nodiscard]] bool create(uint64_t key_bytes);

    Status create_namespace(const quire_namespace_desc &desc, uint64_t *out);
    Status destroy_namespace(uint64_t handle);
    Status namespace_info(uint64_t handle, quire_namespace_info *out) const;

    // Charges what the sequence holds now instead of `charged_before`.
    void charge(const Sequence &s, uint32_t charged_before);
    // Charges a change whose sequence now holds more or fewer blocks. No other sequence may count
    // on the blocks given back while the change can be undone.
    void charge_change(Change *change, uint32_t charged_before);
    // Called when the change is final or about to be undone. REQUIRES: it was not dropped.
    void settle_returned(const Change &change) {
        if (change.returned == 0) [[likely]]
            return;
        Namespace &ns = books_.namespaces[books_.sequences[change.sequence].name_space];
        (change.kind == ChangeKind::item ? ns.returned : ns.given_up) -= change.returned;
    }
    Taker taker(uint32_t sequence, bool overwrites) const;

    // Finds or makes the sequence's root and the scope of its spans; its namespace pays for both.
    Status use_keys(const quire_key *keys, uint32_t key_count, Sequence *fresh);
    // Brings the namespace's keys within its limit by forgetting cached content, the longest unused
    // first; forgets nothing if that is not enough.
    Status fit_account(uint32_t account);
    void end_keys(const Sequence &s);

 private:
    uint32_t use_spans(uint32_t root, uint32_t account, const quire_key *keys, uint32_t key_count);

    CacheBooks &books_;
    Array<uint32_t> words_;
    Array<Span> spans_;
};

}  // namespace quire
