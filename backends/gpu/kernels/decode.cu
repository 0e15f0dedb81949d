// SPDX-License-Identifier: Apache-2.0
//
// decode: the kernels of decode.hpp, one for each format and head dim that it serves.

#include "decode.hpp"

namespace quire::gpu {

#if !defined(QUIRE_BLOCKS_OF_CODES)
#define QUIRE_BLOCKS_OF_CODES 2
#endif
#if !defined(QUIRE_BLOCKS_OF_HALVES)
#define QUIRE_BLOCKS_OF_HALVES 2
#endif
constexpr uint32_t kBlocksOfCodes = QUIRE_BLOCKS_OF_CODES;
constexpr uint32_t kBlocksOfHalves = QUIRE_BLOCKS_OF_HALVES;
template <uint32_t format, uint32_t dim>
constexpr uint32_t blocks_of() {
    uint32_t blocks = format >= kI8 ? kBlocksOfCodes : kBlocksOfHalves;
    return dim == 64 && blocks < 3 ? 3 : blocks;
}

#define QUIRE_DECODE(name, format, dim)                                                  \
    QUIRE_KERNEL_OF_BLOCKS(quire_decode_##name##_##dim, 128, (blocks_of<format, dim>()), \
                           AttendCall, call) {                                           \
        decode<format, dim>(call);                                                       \
    }
QUIRE_DECODE_INSTANCES(QUIRE_DECODE)

}  // namespace quire::gpu
