// SPDX-License-Identifier: Apache-2.0
//
// decode: the kernels of decode.hpp, for each format and head dim that it serves one of narrow and
// one of wide units.

#include "decode.hpp"

namespace quire::gpu {

// Blocks that a multiprocessor should have room for, with narrow units of codes of dim 128. Four
// give a thread 128 registers, too few on sm_100; the shared memory of sm_120 holds two.
constexpr uint32_t kBlocksOfCodes = kNvidiaTarget < 1000 ? 4 : kNvidiaTarget < 1200 ? 3 : 2;

// And with others. Rows of 16 bits fill its shared memory.
template <uint32_t format, uint32_t dim, uint32_t queries>
constexpr uint32_t blocks_of() {
    if (format < kI8 || queries != kNarrowQueries) return dim == 64 ? 3 : 2;
    return dim == 64 ? 4 : dim == 96 ? 3 : kBlocksOfCodes;
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
