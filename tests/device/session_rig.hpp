// SPDX-License-Identifier: Apache-2.0
//
// session_rig: sessions of sharded caches in memory, and steps of one sequence.
#pragma once

#include <string>

#include "sharded_cache.hpp"

namespace quire::test {

using Bytes = std::vector<uint8_t>;
using Tokens = std::vector<uint32_t>;

// The caller's end of a session. fails_at: the call of that number, from 1, returns `failure`.
struct SessionStream {
    Bytes bytes;
    uint64_t at = 0;
    uint32_t calls = 0;
    uint32_t fails_at = 0;
    quire_status failure = QUIRE_E_LIMIT;

    static quire_status write(void *user, const void *bytes, uint64_t size_bytes) {
        auto *self = static_cast<SessionStream *>(user);
        if (++self->calls == self->fails_at) return self->failure;
        const auto *first = static_cast<const uint8_t *>(bytes);
        self->bytes.insert(self->bytes.end(), first, first + size_bytes);
        return QUIRE_OK;
    }
    static quire_status read(void *user, void *bytes, uint64_t size_bytes) {
        auto *self = static_cast<SessionStream *>(user);
        if (++self->calls == self->fails_at) return self->failure;
        if (size_bytes > self->bytes.size() - self->at) return QUIRE_E_OS;
        if (size_bytes != 0) std::memcpy(bytes, self->bytes.data() + self->at, size_bytes);
        self->at += size_bytes;
        return QUIRE_OK;
    }
};

inline quire_export_desc export_desc(SessionStream *stream) {
    auto desc = described<quire_export_desc>();
    desc.fingerprint[0] = 7;
    desc.write = stream != nullptr ? SessionStream::write : nullptr;
    desc.user = stream;
    return desc;
}

inline quire_import_desc import_desc(SessionStream *stream) {
    auto desc = described<quire_import_desc>();
    desc.fingerprint[0] = 7;
    desc.read = stream != nullptr ? SessionStream::read : nullptr;
    desc.user = stream;
    return desc;
}

inline quire_status try_export(ShardedCache *c, quire_seq seq, Bytes *out,
                               quire_session_info *info = nullptr) {
    SessionStream stream;
    quire_export_desc desc = export_desc(&stream);
    quire_status status = c->api.seq_export_wait(c->cache, seq, &desc, info, UINT64_MAX, &c->error);
    *out = stream.bytes;
    return status;
}

inline Bytes exported(ShardedCache *c, quire_seq seq) {
    Bytes bytes;
    auto info = described<quire_session_info>();
    EXPECT_EQ(try_export(c, seq, &bytes, &info), QUIRE_OK) << c->error.message;
    EXPECT_EQ(info.size_bytes, bytes.size());
    return bytes;
}

inline quire_status try_import(ShardedCache *c, const Bytes &bytes, quire_seq *seq,
                               quire_session_info *info = nullptr) {
    SessionStream stream;
    stream.bytes = bytes;
    quire_import_desc desc = import_desc(&stream);
    return c->api.seq_import(c->cache, &desc, seq, info, &c->error);
}

inline quire_seq imported(ShardedCache *c, const Bytes &bytes) {
    quire_seq seq = 0;
    EXPECT_EQ(try_import(c, bytes, &seq), QUIRE_OK) << c->error.message;
    EXPECT_EQ(c->api.cache_check(c->cache, &c->error), QUIRE_OK) << c->error.message;
    return seq;
}

inline quire_seq created(ShardedCache *c) {
    auto desc = described<quire_seq_desc>();
    quire_seq seq = 0;
    c->must(c->api.seq_create(c->cache, &desc, &seq, &c->error));
    return seq;
}

inline void ended(ShardedCache *c, quire_seq seq) {
    c->must(c->api.seq_end(c->cache, seq, 0, &c->error));
}

inline quire_seq_info info_of(ShardedCache *c, quire_seq seq) {
    auto info = described<quire_seq_info>();
    c->must(c->api.seq_get_info(c->cache, seq, &info, &c->error));
    return info;
}

inline quire_cache_stats stats_of(ShardedCache *c) {
    auto stats = described<quire_cache_stats>();
    c->must(c->api.cache_get_stats(c->cache, &stats, &c->error));
    return stats;
}

// A step of one sequence.
struct Advance {
    uint32_t draft_count = 0;
    uint32_t outcome = QUIRE_STEP_OK;
    bool is_told = true;  // else the tokens are added as unknown
    std::function<void(quire_step step, uint32_t layer)> after_layer = {};
};

// Adds tokens to a sequence whose known tokens are *known, runs them with their kernels, and
// returns the outputs of all layers. *first receives where the computation began.
inline std::vector<float> advance(ShardedCache *c, quire_seq seq, Tokens *known, const Tokens &more,
                                  uint32_t *first = nullptr, const Advance &how = {}) {
    known->insert(known->end(), more.begin(), more.end());
    Tokens told = how.is_told ? more : Tokens(more.size(), QUIRE_TOKEN_UNKNOWN);
    quire_step_item item{};
    item.seq = seq;
    item.token_count = static_cast<uint32_t>(more.size());
    item.draft_count = how.draft_count;
    quire_step_desc desc = c->step_desc();
    quire_step_result result{};
    quire_step step = 0;
    c->must(c->api.step_begin(c->cache, &desc, &item, 1, sizeof item, told.data(), item.token_count,
                              &result, sizeof result, &step, &c->error));
    EXPECT_EQ(result.outcome, QUIRE_ITEM_RUN);
    c->must(c->api.step_commit(c->cache, step, c->batch, &c->error));
    TestRow row{{}, result.first_position};
    row.tokens.assign(known->begin() + result.first_position,
                      known->begin() + result.first_position + result.compute_count);
    std::vector<float> out = c->launch({row}, [&](uint32_t layer) {
        if (how.after_layer) how.after_layer(step, layer);
    });
    c->must(c->api.step_finish(c->cache, step, nullptr, how.outcome, &c->error));
    if (first != nullptr) *first = result.first_position;
    return out;
}

inline Tokens tokens_from(uint32_t first, uint32_t count) {
    Tokens tokens(count);
    for (uint32_t i = 0; i < count; ++i) tokens[i] = first + i * i % 11;
    return tokens;
}

// Swaps a sequence out, by a step that does nothing else.
inline void swap_out(ShardedCache *c, quire_seq seq) {
    quire_step_desc desc = c->step_desc();
    quire_step step = 0;
    uint32_t freed = 0;
    c->must(c->api.step_begin(c->cache, &desc, nullptr, 0, sizeof(quire_step_item), nullptr, 0,
                              nullptr, 0, &step, &c->error));
    c->must(c->api.step_preempt(c->cache, step, seq, QUIRE_PREEMPT_SWAP, &freed, &c->error));
    c->must(c->api.step_commit(c->cache, step, c->batch, &c->error));
    c->must(c->api.step_finish(c->cache, step, nullptr, QUIRE_STEP_OK, &c->error));
    EXPECT_NE(info_of(c, seq).flags & QUIRE_SEQ_SWAPPED, 0u);
}

}  // namespace quire::test
