// SPDX-License-Identifier: Apache-2.0

#include "core/steps/sequence_keys.hpp"

#include <initializer_list>

namespace quire {

namespace {

uint32_t words_of(uint32_t size_bytes) { return (size_bytes + 3) / 4; }

bool append_bytes(const void *bytes, uint32_t size_bytes, Array<uint32_t> *out) {
    uint64_t at = out->size();
    uint32_t words = words_of(size_bytes);
    if (!out->reserve(at + words)) return false;
    out->resize_within(at + words);
    if (words == 0) return true;
    (*out)[at + words - 1] = 0;  // padding
    std::memcpy(out->data() + at, bytes, size_bytes);
    return true;
}

bool append_words(std::initializer_list<uint32_t> words, Array<uint32_t> *out) {
    for (uint32_t word : words) {
        if (!out->push_growing(word)) return false;
    }
    return true;
}

}  // namespace

Status check_keys(const quire_key *keys, uint32_t key_count) {
    if (key_count > kMaxKeys) {
        return fail(QUIRE_E_LIMIT, "key_count is {}: at most {}", key_count, kMaxKeys);
    }
    for (uint32_t i = 0; i < key_count; ++i) {
        const quire_key &key = keys[i];
        if (key.type < QUIRE_KEY_ADAPTER || key.type > QUIRE_KEY_OTHER) {
            return fail(QUIRE_E_UNSUPPORTED, "keys[{}].type {} is not known", i, key.type);
        }
        if (key.size_bytes > kMaxKeyBytes) {
            return fail(QUIRE_E_LIMIT, "keys[{}].size_bytes is {}: at most 4096", i,
                        key.size_bytes);
        }
        if (key.size_bytes != 0 && key.bytes == nullptr) {
            return fail(QUIRE_E_ARG, "keys[{}].bytes is NULL", i);
        }
        if (is_span(key) && key.begin >= key.end) {
            return fail(QUIRE_E_ARG, "keys[{}]: a span's begin must lie before its end", i);
        }
    }
    return Status{};
}

bool encode_key(const quire_key &key, Array<uint32_t> *out) {
    return append_words({key.type, key.size_bytes}, out) &&
           append_bytes(key.bytes, key.size_bytes, out);
}

bool encode_root(uint64_t name_space, const quire_key *keys, uint32_t key_count,
                 Array<uint32_t> *out) {
    uint32_t whole = 0;
    for (uint32_t i = 0; i < key_count; ++i) whole += is_span(keys[i]) ? 0 : 1;
    uint32_t low = static_cast<uint32_t>(name_space),
             high = static_cast<uint32_t>(name_space >> 32);
    if (!append_words({low, high, whole}, out)) return false;
    for (uint32_t i = 0; i < key_count; ++i) {
        if (!is_span(keys[i]) && !encode_key(keys[i], out)) return false;
    }
    return true;
}

}  // namespace quire
