// SPDX-License-Identifier: Apache-2.0

#include "shared/copies.hpp"

#include <cinttypes>

#include "shared/checks.hpp"

namespace quire {

namespace {

// True if [address, address + size_bytes) may be memory.
bool is_range(uint64_t address, uint64_t size_bytes) {
    uint64_t end = 0;
    return size_bytes == 0 || (address != 0 && !__builtin_add_overflow(address, size_bytes, &end));
}

quire_status check_copy(const quire_be_copy &one, uint32_t index, quire_error *error) {
    if (one.kind > QUIRE_BE_COPY_H2H) {
        return fail(error, QUIRE_E_ARG, "copy %u has the unknown kind %u", index, one.kind);
    }
    if (!is_range(one.dst, one.size_bytes) || !is_range(one.src, one.size_bytes)) {
        return fail(error, QUIRE_E_ARG,
                    "copy %u of %" PRIu64
                    " bytes has a NULL address or overflows the address space",
                    index, one.size_bytes);
    }
    uint64_t distance = one.dst > one.src ? one.dst - one.src : one.src - one.dst;
    if (distance < one.size_bytes) {
        return fail(error, QUIRE_E_ARG,
                    "copy %u of %" PRIu64
                    " bytes overlaps itself: destination and source are %" PRIu64 " bytes apart",
                    index, one.size_bytes, distance);
    }
    return QUIRE_OK;
}

}  // namespace

quire_status check_copies(const quire_be_copy *copies, uint32_t count, quire_error *error) {
    if (count == 0) return QUIRE_OK;
    if (copies == nullptr)
        return fail(error, QUIRE_E_ARG, "copies is NULL, but count is %u", count);
    uint64_t sum_bytes = 0;
    for (uint32_t i = 0; i < count; ++i) {
        if (quire_status status = check_copy(copies[i], i, error)) return status;
        if (__builtin_add_overflow(sum_bytes, copies[i].size_bytes, &sum_bytes)) {
            return fail(error, QUIRE_E_ARG, "the first %u copies exceed 2^64 bytes in total",
                        i + 1);
        }
    }
    return QUIRE_OK;
}

quire_status check_fill(const quire_be_range *ranges, uint32_t count, uint32_t byte,
                        quire_error *error) {
    if (byte > 0xFF) return fail(error, QUIRE_E_ARG, "byte is %u; it must be 0 to 255", byte);
    if (count == 0) return QUIRE_OK;
    if (ranges == nullptr)
        return fail(error, QUIRE_E_ARG, "ranges is NULL, but count is %u", count);
    uint64_t sum_bytes = 0;
    for (uint32_t i = 0; i < count; ++i) {
        uint64_t size_bytes = ranges[i].size_bytes;
        if (!is_range(ranges[i].address, size_bytes)) {
            return fail(error, QUIRE_E_ARG,
                        "fill range %u of %" PRIu64
                        " bytes has a NULL address or overflows the address space",
                        i, size_bytes);
        }
        if (__builtin_add_overflow(sum_bytes, size_bytes, &sum_bytes)) {
            return fail(error, QUIRE_E_ARG, "the first %u ranges exceed 2^64 bytes in total",
                        i + 1);
        }
    }
    return QUIRE_OK;
}

}  // namespace quire
