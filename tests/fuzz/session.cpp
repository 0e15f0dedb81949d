// SPDX-License-Identifier: Apache-2.0
//
// session: any bytes as a session (docs/session-format.md) for a small cache.
//
// The first byte: bit 0 seals the head, bit 1 each block, and a tail; bit 2 gives the sequence a
// key; bit 3: they are a hand-over, in pieces as large as bits 4 to 7 say. What is refused changes
// nothing. What is accepted is exported again; that comes back as the same bytes, also after a
// hand-over, and its sequence runs.
//
// Threads: none.

#include <algorithm>
#include <vector>

#include "answers.hpp"
#include "bytes.hpp"
#include "library.hpp"
#include "sealed.hpp"
#include "simulated.hpp"

namespace {

using namespace quire::fuzz;
using Session = std::vector<uint8_t>;

constexpr size_t kHeaderBytes = 256, kHeadBytesAt = 16, kChecksumAt = 32, kSizeAt = 16;
constexpr size_t kTailBytes = 64;
constexpr uint32_t kBlockTokens = 2, kHostBlocks = 8;

// Seals bytes [begin, begin + size_bytes), which begin with a header.
void seal_part(Session *bytes, size_t begin, size_t size_bytes, size_t checksum_at) {
    uint8_t *at = bytes->data() + begin;
    uint64_t sum = 0;
    std::memcpy(at + checksum_at, &sum, sizeof sum);
    sum = XXH3_64bits_withSeed(at + kHeaderBytes, size_bytes - kHeaderBytes,
                               XXH3_64bits(at, kHeaderBytes));
    std::memcpy(at + checksum_at, &sum, sizeof sum);
}

size_t number_at(const Session &bytes, size_t at) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

uint32_t number_of_tokens(const Session &bytes) {
    uint32_t known = 0;
    std::memcpy(&known, bytes.data() + 40, sizeof known);
    return known;
}
uint32_t computed_tokens(const Session &bytes) {
    uint32_t computed = 0;
    std::memcpy(&computed, bytes.data() + 44, sizeof computed);
    return computed;
}

void seal_session(Session *bytes, bool head, bool blocks) {
    if (bytes->size() < kHeaderBytes) return;
    size_t at = number_at(*bytes, kHeadBytesAt);
    if (at < kHeaderBytes || at > bytes->size()) return;
    if (head) seal_part(bytes, 0, at, kChecksumAt);
    while (blocks && bytes->size() - at >= kHeaderBytes) {
        size_t size_bytes = number_at(*bytes, at + kSizeAt);
        if (size_bytes < kHeaderBytes || size_bytes > bytes->size() - at) return;
        seal_part(bytes, at, size_bytes, kCanonicalSeal.checksum_at);
        at += size_bytes;
    }
    if (!blocks || bytes->size() - at != kTailBytes) return;
    const uint64_t sum = XXH3_64bits(bytes->data() + at, kTailBytes - sizeof(uint64_t));
    std::memcpy(bytes->data() + bytes->size() - sizeof sum, &sum, sizeof sum);
}

// The caller's end of a session.
struct Stream {
    Session bytes;
    size_t at = 0;

    static quire_status write(void *user, const void *from, uint64_t size_bytes) {
        Session &bytes = static_cast<Stream *>(user)->bytes;
        const auto *first = static_cast<const uint8_t *>(from);
        bytes.insert(bytes.end(), first, first + size_bytes);
        return QUIRE_OK;
    }
    static quire_status read(void *user, void *to, uint64_t size_bytes) {
        auto *self = static_cast<Stream *>(user);
        if (size_bytes > self->bytes.size() - self->at) return QUIRE_E_LIMIT;
        if (size_bytes != 0) std::memcpy(to, self->bytes.data() + self->at, size_bytes);
        self->at += size_bytes;
        return QUIRE_OK;
    }
};

// A cache on the honest device, for all inputs.
class Target {
 public:
    Target() : api_(library()), instance_(new_instance()) {
        uint32_t index = 0;
        must(api_.backend_load(instance_, simulated_plugin(honest_table()).c_str(), &index,
                               &error_));
        auto desc = described<quire_device_desc>();
        desc.backend = "answers";
        must(api_.device_open(instance_, &desc, &device_, &error_));
        must(api_.queue_create(device_, nullptr, &queue_, &error_));
        make_cache();
    }

    quire_status try_import(const Session &bytes, bool has_key, quire_seq *out) {
        Stream stream{bytes, 0};
        quire_key key{QUIRE_KEY_SALT, 4, "salt", 0, 0};
        auto seq = described<quire_seq_desc>();
        seq.keys = &key;
        seq.key_count = has_key ? 1 : 0;
        seq.key_stride = sizeof key;
        auto desc = described<quire_import_desc>();
        desc.seq = &seq;
        desc.read = Stream::read;
        desc.user = &stream;
        error_ = new_error();
        auto info = described<quire_session_info>();
        quire_status status = api_.seq_import(cache_, &desc, out, &info, &error_);
        require_words(status, error_);
        require(status != QUIRE_E_INTERNAL, "no input finds a defect", error_.message);
        require(status < 0 || info.size_bytes == stream.at, "an accepted session is all of it");
        return status;
    }
    Session exported(quire_seq seq) {
        Stream stream;
        auto desc = described<quire_export_desc>();
        desc.write = Stream::write;
        desc.user = &stream;
        must(api_.seq_export_wait(cache_, seq, &desc, nullptr, UINT64_MAX, &error_));
        return stream.bytes;
    }
    // The same sequence as a hand-over; empty if a window has passed what one holds.
    Session sent(quire_seq seq) {
        auto desc = described<quire_handover_send_desc>();
        quire_handover handover = 0;
        must(api_.handover_send(cache_, seq, &desc, &handover, &error_));
        Session bytes;
        auto progress = described<quire_handover_progress>();
        while (progress.is_whole == 0) {
            uint8_t piece[100];
            uint64_t size_bytes = 0;
            const quire_status status = api_.handover_read(cache_, handover, piece, sizeof piece,
                                                           &size_bytes, &progress, &error_);
            if (status == QUIRE_E_ARG) {
                bytes.clear();
                break;
            }
            must(status);
            bytes.insert(bytes.end(), piece, piece + size_bytes);
        }
        must(api_.handover_end(cache_, handover, &error_));
        return bytes;
    }
    // 0: they are refused, or end too early.
    quire_seq received(const Session &bytes, bool has_key, size_t piece) {
        quire_key key{QUIRE_KEY_SALT, 4, "salt", 0, 0};
        auto seq = described<quire_seq_desc>();
        seq.keys = &key;
        seq.key_count = has_key ? 1 : 0;
        seq.key_stride = sizeof key;
        auto desc = described<quire_handover_receive_desc>();
        desc.seq = &seq;
        quire_handover handover = 0;
        must(api_.handover_receive(cache_, &desc, &handover, &error_));
        auto progress = described<quire_handover_progress>();
        quire_status status = QUIRE_OK;
        for (size_t at = 0; status == QUIRE_OK && at < bytes.size();) {
            uint64_t used = 0;
            const size_t count = std::min(piece, bytes.size() - at);
            error_ = new_error();
            status = api_.handover_write(cache_, handover, bytes.data() + at, count, &used,
                                         &progress, &error_);
            require_words(status, error_);
            require(status != QUIRE_E_INTERNAL, "no input finds a defect", error_.message);
            require(used <= count, "no more is taken than given");
            at += used;
            if (used != count) break;
        }
        require(status != QUIRE_OK || progress.is_whole == (progress.seq != 0 ? 1u : 0u),
                "what is whole has a sequence");
        must(api_.handover_end(cache_, handover, &error_));
        return progress.seq;
    }
    void end(quire_seq seq) { must(api_.seq_end(cache_, seq, QUIRE_END_DROP_PREFIX, &error_)); }
    // One more token; its blocks come to the device.
    void run(quire_seq seq) {
        quire_step_item item{};
        item.seq = seq;
        item.token_count = 1;
        quire_token token = 5;
        auto desc = described<quire_step_desc>();
        desc.queues = &queue_;
        desc.queue_count = 1;
        quire_step_result result{};
        quire_step step = 0;
        must(api_.step_begin(cache_, &desc, &item, 1, sizeof item, &token, 1, &result,
                             sizeof result, &step, &error_));
        must(api_.step_commit(cache_, step, nullptr, &error_));
        must(api_.step_finish(cache_, step, nullptr, QUIRE_STEP_OK, &error_));
        must(api_.step_begin(cache_, &desc, nullptr, 0, sizeof item, nullptr, 0, nullptr, 0, &step,
                             &error_));
        must(api_.step_abort(cache_, step, &error_));  // notices that it has run
    }
    void expect_empty() {
        must(api_.cache_check(cache_, &error_));
        auto stats = described<quire_cache_stats>();
        must(api_.cache_get_stats(cache_, &stats, &error_));
        require(stats.sequences == 0 && stats.host_blocks_used == 0, "nothing is left");
    }

 private:
    void must(quire_status status) { require(status >= 0, "a call succeeds", error_.message); }
    void make_cache() {
        quire_group_desc groups[2];
        for (quire_group_desc &group : groups) {
            group = described<quire_group_desc>();
            group.layer_count = group.kv_heads = 1;
            group.k_head_dim = group.v_head_dim = 4;
            group.k_dtype = QUIRE_DTYPE_F32;
        }
        groups[1].kind = QUIRE_GROUP_WINDOW;
        groups[1].window = 3;
        groups[1].sink_tokens = 2;
        groups[1].k_dtype = QUIRE_DTYPE_I8;
        groups[1].k_scale = QUIRE_SCALE_TOKEN_HEAD;
        auto shard = described<quire_shard_desc>();
        shard.device = device_;
        auto desc = described<quire_cache_desc>();
        desc.groups = groups;
        desc.group_count = 2;
        desc.group_stride = sizeof groups[0];
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        desc.blocks = 16;
        desc.block_tokens = kBlockTokens;
        desc.max_sequences = 4;
        desc.max_sequence_tokens = 20;
        desc.host_blocks = kHostBlocks;
        must(api_.cache_create(instance_, &desc, &cache_, &error_));
    }

    const quire_api &api_;
    quire_error error_ = new_error();
    quire_instance *instance_;
    quire_device *device_ = nullptr;
    quire_queue *queue_ = nullptr;
    quire_cache *cache_ = nullptr;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static auto *target = new Target;  // as long as the process
    Bytes input(data, size_bytes);
    uint8_t how = input.byte();
    Session bytes = input.rest();
    seal_session(&bytes, (how & 1) != 0, (how & 2) != 0);
    const bool has_key = (how & 4) != 0;
    quire_seq seq = 0;
    if ((how & 8) != 0) {
        const size_t piece = 1 + size_t{37} * (how >> 4);
        seq = target->received(bytes, has_key, piece);
        if (seq != 0) {
            target->run(seq);
            target->end(seq);
        }
        target->expect_empty();
        return 0;
    }
    quire_status status = target->try_import(bytes, has_key, &seq);
    if (status != QUIRE_OK) {
        require(seq == 0, "no sequence comes from a refusal");
        target->expect_empty();
        return 0;
    }
    const Session first = target->exported(seq);
    require(first.size() <= bytes.size(), "what was accepted is exported");
    target->end(seq);
    seq = 0;
    require(target->try_import(first, has_key, &seq) == QUIRE_OK, "what was exported comes back");
    require(target->exported(seq) == first, "as the same bytes");
    if (number_of_tokens(first) != 0 && number_of_tokens(first) == computed_tokens(first)) {
        const Session handed = target->sent(seq);
        if (!handed.empty()) {
            const quire_seq back = target->received(handed, has_key, 7);
            require(back != 0, "what was sent is received");
            require(target->sent(back) == handed, "as the same bytes");
            target->end(back);
        }
    }
    target->run(seq);
    target->end(seq);
    target->expect_empty();
    return 0;
}
