// SPDX-License-Identifier: Apache-2.0
//
// canary: a parser with a planted bug, which the fuzzer must find, and a kept input that shows the
// bug must fail the replay. So each shows that it can fail.
//
// The format: "QC", a count, then that many pairs of place and value. The bug: place 16 is taken
// too, one past the end of the table.
//
// Threads: none.

#include <cstring>

#include "bytes.hpp"
#include "require.hpp"

namespace {

constexpr uint8_t kPlaces = 16;
constexpr uint8_t kGuard = 0xA5;

struct Table {
    uint8_t values[kPlaces];
    uint8_t guard;
};

void parse(quire::fuzz::Bytes input, Table *table) {
    if (input.byte() != 'Q' || input.byte() != 'C') return;
    for (uint8_t count = input.byte(); count != 0 && !input.ended(); --count) {
        uint8_t place = input.byte(), value = input.byte();
        if (place > kPlaces) return;  // the planted bug: >= is right
        reinterpret_cast<uint8_t *>(table)[place] = value;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    Table table{};
    table.guard = kGuard;
    parse(quire::fuzz::Bytes(data, size_bytes), &table);
    quire::fuzz::require(table.guard == kGuard, "nothing is written past the table");
    return 0;
}
