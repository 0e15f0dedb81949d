// SPDX-License-Identifier: Apache-2.0
//
// store_state: a store that broke its contract, and the flush with which a detach ends.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/status.hpp"
#include "core/tiers/store_link.hpp"

namespace quire {

// After the first fault the store is not called any more: it may never answer, so what it has stays
// with the link.
class StoreFault {
 public:
    void clear() {
        is_broken_ = false;
        words_ = quire_error{};
        words_.struct_size = sizeof words_;
    }
    bool is_broken() const { return is_broken_; }
    // Where a call of the store puts its words.
    quire_error *words() { return &words_; }
    // True if it is the first. words: those of the call, if they are elsewhere.
    bool note(const Status &status, const quire_error *words = nullptr) {
        if (is_broken_) return false;
        is_broken_ = true;
        if (words != nullptr) words_ = *words;
        if (words_.message[0] == '\0' && status.text != nullptr) {
            for (uint32_t i = 0; i + 1 < sizeof words_.message && status.text[i] != '\0'; ++i)
                words_.message[i] = status.text[i];
        }
        return true;
    }
    // OK unless the store broke its contract.
    Status check(quire_error *error) const {
        if (!is_broken_) return Status{};
        const uint32_t size = error->struct_size;
        *error = words_;
        error->struct_size = size;
        return fail(QUIRE_E_BACKEND, nullptr);
    }

 private:
    bool is_broken_ = false;
    quire_error words_{};
};

class Flush {
 public:
    void clear() { is_asked_ = is_done_ = false; }
    void answered() { is_done_ = true; }
    // Asks for it once no request is under way. True: the store has ended everything.
    bool is_over(StoreLink *link, quire_error *words) {
        if (!is_asked_ && link->transfers.count() == 0) {
            Transfer *flush = link->transfers.take(QUIRE_STORE_FLUSH, 0);
            quire_store_request request{};
            request.kind = QUIRE_STORE_FLUSH;
            request.cookie = flush->cookie;
            uint32_t taken = 0;
            Status given = link->submit(&request, 1, &taken, words);
            is_asked_ = given.ok() && taken == 1;
            if (taken == 0) link->transfers.end(flush);
            if (!given.ok()) return true;  // a store without it, or one that takes no more
        }
        return is_done_ && link->transfers.count() == 0;
    }

 private:
    bool is_asked_ = false;
    bool is_done_ = false;
};

}  // namespace quire
