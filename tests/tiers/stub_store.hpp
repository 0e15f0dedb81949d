// SPDX-License-Identifier: Apache-2.0
//
// stub_store: how a test steers the stub store, which is the memory store with faults that can be
// switched on and off while it is open. It is found as "quire_stub_control" in the plugin.
#pragma once

#include <atomic>
#include <cstdint>

namespace quire::test {

struct StubControl {
    std::atomic<bool> holds{false};       // answers wait until this is off
    std::atomic<bool> reverses{false};    // the last answer comes first
    std::atomic<bool> takes_none{false};  // submit takes no request
    std::atomic<bool> fails_gets{false};  // FAILED
    std::atomic<bool> fails_puts{false};
    std::atomic<bool> spoils{false};   // a byte of each value that is read differs
    std::atomic<bool> swaps{false};    // a GET gives the value that was put first
    std::atomic<bool> cuts{false};     // a GET is answered SIZE
    std::atomic<bool> forgets{false};  // a GET is answered MISS, though find says PRESENT
    std::atomic<bool> lies{false};     // reap gives an answer to no request
    // A GET's word at this byte is replaced and the value sealed again; UINT32_MAX: none is.
    std::atomic<uint32_t> tampers_at{UINT32_MAX};
    std::atomic<uint32_t> tampers_to{0};
    std::atomic<uint32_t> tampered{0};  // the word that was there
    std::atomic<uint64_t> gets{0};      // taken
    std::atomic<uint64_t> cancels{0};

    void reset() {
        for (std::atomic<bool> *one : {&holds, &reverses, &takes_none, &fails_gets, &fails_puts,
                                       &spoils, &swaps, &cuts, &forgets, &lies}) {
            *one = false;
        }
        tampers_at = UINT32_MAX;
    }
};

}  // namespace quire::test
