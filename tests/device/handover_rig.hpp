// SPDX-License-Identifier: Apache-2.0
//
// handover_rig: both ends of a hand-over between two sharded caches, in one process.
//
// Threads: one.
#pragma once

#include <string>

#include "session_rig.hpp"

namespace quire::test {

inline quire_handover_progress no_progress() { return described<quire_handover_progress>(); }

inline quire_handover_send_desc send_desc(const Tokens &tokens, uint64_t staging_bytes = 0) {
    auto desc = described<quire_handover_send_desc>();
    desc.fingerprint[0] = 7;
    desc.tokens = tokens.empty() ? nullptr : tokens.data();
    desc.token_count = static_cast<uint32_t>(tokens.size());
    desc.staging_bytes = staging_bytes;
    return desc;
}

inline quire_handover_receive_desc receive_desc() {
    auto desc = described<quire_handover_receive_desc>();
    desc.fingerprint[0] = 7;
    return desc;
}

// The end that computes. Its bytes are collected.
class Sender {
 public:
    // tokens: those to be handed over; empty: the known ones.
    Sender(ShardedCache *c, quire_seq seq, const Tokens &tokens = {}, uint64_t staging_bytes = 0)
        : c_(c) {
        const auto desc = send_desc(tokens, staging_bytes);
        c->must(c->api.handover_send(c->cache, seq, &desc, &handle, &c->error));
    }
    ~Sender() {
        if (handle != 0) end();
    }
    Sender(const Sender &) = delete;
    Sender &operator=(const Sender &) = delete;

    void end() {
        EXPECT_EQ(c_->api.handover_end(c_->cache, handle, &c_->error), QUIRE_OK);
        handle = 0;
    }
    quire_status layers(quire_step step, uint32_t first, uint32_t count = 1) {
        return c_->api.handover_layers(c_->cache, handle, step, first, count, &c_->error);
    }
    // Reads all that is there, in buffers of so many bytes.
    quire_status read(uint64_t capacity = 1000) {
        Bytes buffer(capacity);
        for (;;) {
            uint64_t size = 0;
            progress = no_progress();
            const quire_status status = c_->api.handover_read(
                c_->cache, handle, buffer.data(), capacity, &size, &progress, &c_->error);
            if (status != QUIRE_OK || size == 0) return status;
            bytes.insert(bytes.end(), buffer.begin(), buffer.begin() + static_cast<long>(size));
            EXPECT_EQ(progress.size_bytes, bytes.size());
        }
    }
    // Until all of it was read: copies run on their own.
    quire_status read_all(uint64_t capacity = 1000) {
        do {
            const quire_status status = read(capacity);
            if (status != QUIRE_OK) return status;
        } while (progress.is_whole == 0);
        return QUIRE_OK;
    }

    quire_handover handle = 0;
    Bytes bytes;
    quire_handover_progress progress = no_progress();

 private:
    ShardedCache *c_;
};

// The end that goes on.
class Receiver {
 public:
    explicit Receiver(ShardedCache *c, const quire_handover_receive_desc &desc = receive_desc())
        : c_(c) {
        c->must(c->api.handover_receive(c->cache, &desc, &handle, &c->error));
    }
    ~Receiver() {
        if (handle != 0) end();
    }
    Receiver(const Receiver &) = delete;
    Receiver &operator=(const Receiver &) = delete;

    void end() {
        EXPECT_EQ(c_->api.handover_end(c_->cache, handle, &c_->error), QUIRE_OK);
        handle = 0;
    }
    // Gives bytes from `at` on, in pieces of at most so many.
    quire_status write(const Bytes &bytes, uint64_t piece = UINT64_MAX) {
        while (at < bytes.size()) {
            uint64_t used = 0;
            const uint64_t count = std::min<uint64_t>(piece, bytes.size() - at);
            progress = no_progress();
            const quire_status status = c_->api.handover_write(c_->cache, handle, bytes.data() + at,
                                                               count, &used, &progress, &c_->error);
            if (status < 0) return status;
            at += used;
            if (status != QUIRE_OK || used != count) return status;
        }
        return QUIRE_OK;
    }
    quire_seq seq() const { return progress.seq; }

    quire_handover handle = 0;
    uint64_t at = 0;
    quire_handover_progress progress = no_progress();

 private:
    ShardedCache *c_;
};

// Nothing of a refused hand-over is left.
inline void expect_empty(ShardedCache *c) {
    c->must(c->api.cache_check(c->cache, &c->error));
    EXPECT_EQ(stats_of(c).sequences, 0u);
    EXPECT_EQ(stats_of(c).host_blocks_used, 0u);
}

inline quire_status truncated(ShardedCache *c, quire_seq seq, uint32_t length) {
    return c->api.seq_truncate(c->cache, seq, length, &c->error);
}

}  // namespace quire::test
