// SPDX-License-Identifier: Apache-2.0

#include "shared/requests.hpp"

#include <cstring>

#include "shared/refusal.hpp"

namespace quire {

namespace {

bool are_zeros(const quire_store_label &label) {
    const quire_store_label zeros{};
    return std::memcmp(&label, &zeros, sizeof label) == 0;
}

quire_status check_pieces(const quire_store_request &request, uint32_t index,
                          uint64_t max_value_bytes, quire_error *error) {
    if (request.piece_count != 0 && request.pieces == nullptr) {
        return fail(error, QUIRE_E_ARG, "requests[%u].pieces is NULL", index);
    }
    uint64_t size_bytes = 0;
    for (uint32_t i = 0; i < request.piece_count; ++i) {
        const quire_store_piece &piece = request.pieces[i];
        if (piece.address == nullptr && piece.size_bytes != 0) {
            return fail(error, QUIRE_E_ARG, "requests[%u].pieces[%u].address is NULL", index, i);
        }
        if (__builtin_add_overflow(size_bytes, piece.size_bytes, &size_bytes)) {
            return fail(error, QUIRE_E_ARG, "the sizes of requests[%u].pieces overflow", index);
        }
    }
    bool is_wrong = size_bytes == 0 || size_bytes > max_value_bytes;
    if (request.kind != QUIRE_STORE_PUT || !is_wrong) return QUIRE_OK;
    return fail(error, QUIRE_E_ARG,
                "requests[%u] puts a value of %llu bytes; it must have 1 to %llu", index,
                static_cast<unsigned long long>(size_bytes),
                static_cast<unsigned long long>(max_value_bytes));
}

quire_status check_request(const RequestLimits &limits, const quire_store_request &request,
                           uint32_t index, quire_error *error) {
    uint32_t kind = request.kind;
    if (kind < QUIRE_STORE_PUT || kind > QUIRE_STORE_COMPACT) {
        return fail(error, QUIRE_E_ARG, "requests[%u].kind %u is unknown", index, kind);
    }
    if (kind == QUIRE_STORE_COMPACT && !limits.compacts) {
        return fail(error, QUIRE_E_UNSUPPORTED,
                    "requests[%u]: this store gives back the room of removed values by itself",
                    index);
    }
    if (request.flags != 0 || request.reserved0 != 0) {
        return fail(error, QUIRE_E_STRUCT, "requests[%u].flags and .reserved0 must be 0", index);
    }
    bool has_value = kind == QUIRE_STORE_PUT || kind == QUIRE_STORE_GET;
    if (!has_value && request.piece_count != 0) {
        return fail(error, QUIRE_E_ARG, "requests[%u] has pieces; only PUT and GET do", index);
    }
    bool has_label = kind != QUIRE_STORE_FLUSH && kind != QUIRE_STORE_COMPACT;
    if (!has_label && !are_zeros(request.label)) {
        return fail(error, QUIRE_E_ARG, "requests[%u].label must be zeros for FLUSH and COMPACT",
                    index);
    }
    bool changes =
        kind == QUIRE_STORE_PUT || kind == QUIRE_STORE_REMOVE || kind == QUIRE_STORE_COMPACT;
    if (limits.is_read_only && changes) {
        return fail(error, QUIRE_E_UNSUPPORTED,
                    "requests[%u] changes the store, which is open READ_ONLY", index);
    }
    return check_pieces(request, index, limits.max_value_bytes, error);
}

}  // namespace

quire_status check_requests(const RequestLimits &limits, const quire_store_request *requests,
                            uint32_t count, uint32_t stride, quire_error *error) {
    if (quire_status status =
            check_input_array(requests, count, stride, sizeof *requests, "requests", error)) {
        return status;
    }
    for (uint32_t i = 0; i < count; ++i) {
        auto request = element_of<quire_store_request>(requests, i, stride);
        if (quire_status status = check_request(limits, request, i, error)) return status;
    }
    return QUIRE_OK;
}

}  // namespace quire
