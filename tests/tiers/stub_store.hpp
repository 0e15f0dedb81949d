// SPDX-License-Identifier: Apache-2.0
//
// stub_store: how a test steers the stub store, which is the memory store with faults that can be
// switched on and off while it is open. "quire_stub_control" in the plugin finds the controls of
// all; a store has that of its option "stub", from 0, the default, to 7.
#pragma once

#include <atomic>
#include <cstdint>

namespace quire::test {

constexpr uint32_t kStubs = 8;

struct StubControl {
    std::atomic<bool> holds{false};       // answers wait until this is off
    std::atomic<bool> reverses{false};    // the last answer comes first
    std::atomic<bool> takes_none{false};  // submit takes no request
    std::atomic<bool> fails_gets{false};  // FAILED
    std::atomic<bool> fails_puts{false};
    std::atomic<bool> spoils{false};       // a byte of each value that is read differs
    std::atomic<bool> swaps{false};        // a GET gives the value that was put first
    std::atomic<bool> cuts{false};         // a GET is answered SIZE
    std::atomic<bool> forgets{false};      // a GET is answered MISS, though find says PRESENT
    std::atomic<bool> lies{false};         // reap gives an answer to no request
    std::atomic<bool> overcounts{false};   // submit says that it took one more than it was given
    std::atomic<bool> doubts{false};       // find says UNKNOWN of everything
    std::atomic<uint64_t> denies{0};       // bit i: the FIND before which `finds` was i is a MISS
    std::atomic<bool> is_remote{false};    // get_info says so
    std::atomic<bool> fails_finds{false};  // or FAILED
    std::atomic<uint64_t> finds{0};        // taken
    // A GET's word at this byte is replaced and the value sealed again; UINT32_MAX: none is.
    std::atomic<uint32_t> tampers_at{UINT32_MAX};
    std::atomic<uint32_t> tampers_to{0};
    std::atomic<uint32_t> tampered{0};  // the word that was there
    std::atomic<uint64_t> gets{0};      // taken
    // Bit i: the faults are for the GET before which `gets` was i, or, if that is more, i % 64.
    std::atomic<uint64_t> picks{UINT64_MAX};
    // Answers to GETs come in the order of the requests, this one first and at last those before
    // it; the other way round with `descends`. UINT32_MAX: as the store has them.
    std::atomic<uint32_t> starts_at{UINT32_MAX};
    std::atomic<bool> descends{false};
    std::atomic<uint32_t> lets{UINT32_MAX};  // so many answers come; others wait
    std::atomic<uint64_t> cancels{0};

    void reset() {
        for (std::atomic<bool> *one :
             {&holds, &reverses, &takes_none, &fails_gets, &fails_puts, &spoils, &swaps, &cuts,
              &forgets, &lies, &overcounts, &descends, &doubts, &is_remote, &fails_finds}) {
            *one = false;
        }
        tampers_at = starts_at = lets = UINT32_MAX;
        picks = UINT64_MAX;
        denies = 0;
    }
};

}  // namespace quire::test
