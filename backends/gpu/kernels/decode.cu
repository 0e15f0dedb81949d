// SPDX-License-Identifier: Apache-2.0
//
// decode: the kernels of decode.hpp, for each format and head dim that it serves one of narrow and
// one of wide units.

#include "decode.hpp"

namespace quire::gpu {

// Blocks that a multiprocessor should have room for. Rows of 16 bits fill its shared memory; beside
// codes there is room for four blocks, if a thread has 128 registers, which narrow units need.
template <uint32_t format, uint32_t dim, uint32_t queries>
constexpr uint32_t blocks_of() {
    if (format >= kI8 && queries == kNarrowQueries && dim != 96) return 4;
    return dim == 64 || (format >= kI8 && queries == kNarrowQueries) ? 3 : 2;
}

#define QUIRE_DECODE_OF(name, format, dim, queries)                                            \
    QUIRE_KERNEL_OF_BLOCKS(name, 128, (blocks_of<format, dim, queries>()), AttendCall, call) { \
        decode<format, dim, queries>(call);                                                    \
    }
#define QUIRE_DECODE(name, format, dim)                                       \
    QUIRE_DECODE_OF(quire_decode_##name##_##dim, format, dim, kNarrowQueries) \
    QUIRE_DECODE_OF(quire_decode_wide_##name##_##dim, format, dim, kWideQueries)
QUIRE_DECODE_INSTANCES(QUIRE_DECODE)

}  // namespace quire::gpu
