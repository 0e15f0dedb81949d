// SPDX-License-Identifier: Apache-2.0
//
// client: a bookkeeping-only cache through the C ABI, to measure what an engine would see.
#pragma once

#include <quire/dyn.h>
#include <quire/quire.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace quire::bench {

inline const quire_api &library() {
    static const quire_api *api = [] {
        const quire_api *loaded = nullptr;
        char why[512] = "";
        if (quire_dyn_load(nullptr, &loaded, why, sizeof why) < 0) {
            std::fprintf(stderr, "%s\n", why);
            std::exit(1);
        }
        return loaded;
    }();
    return *api;
}

template <typename T>
T described() {
    T value{};
    value.struct_size = sizeof value;
    return value;
}

struct Shape {
    uint32_t groups = 1;  // the second one is a sliding window
    uint32_t blocks = 0;
    uint32_t max_sequences = 1024;
    uint32_t window = 256;
    uint32_t flags = 0;          // QUIRE_CACHE_*
    bool windows_alone = false;  // the first group is one too
};

class Client {
 public:
    explicit Client(const Shape &shape) {
        error_.struct_size = sizeof error_;
        auto instance_desc = described<quire_instance_desc>();
        must(api.instance_create(&instance_desc, &instance_, &error_));
        quire_group_desc groups[2];
        for (uint32_t g = 0; g < shape.groups; ++g) {
            groups[g] = described<quire_group_desc>();
            groups[g].layer_count = groups[g].kv_heads = 1;
            groups[g].k_head_dim = groups[g].v_head_dim = 1;
            bool is_full = g == 0 && !shape.windows_alone;
            groups[g].kind = is_full ? QUIRE_GROUP_FULL : QUIRE_GROUP_WINDOW;
            groups[g].window = is_full ? 0 : shape.window;
        }
        auto desc = described<quire_cache_desc>();
        desc.flags = shape.flags;
        desc.groups = groups;
        desc.group_count = shape.groups;
        desc.group_stride = sizeof groups[0];
        desc.blocks = shape.blocks;
        desc.max_sequences = shape.max_sequences;
        must(api.cache_create(instance_, &desc, &cache, &error_));
    }
    ~Client() {
        api.cache_destroy(cache, nullptr);
        api.instance_destroy(instance_, nullptr);
    }
    Client(const Client &) = delete;
    Client &operator=(const Client &) = delete;

    void must(quire_status status) const {
        if (status >= 0) return;
        std::fprintf(stderr, "%s\n", error_.message);
        std::exit(1);
    }
    quire_error *error() { return &error_; }

    quire_seq create() {
        auto desc = described<quire_seq_desc>();
        quire_seq seq = 0;
        must(api.seq_create(cache, &desc, &seq, &error_));
        return seq;
    }

    // One step with one item; the blocks must suffice.
    void run(quire_seq seq, const std::vector<uint32_t> &tokens) {
        auto desc = described<quire_step_desc>();
        quire_step_item item{};
        item.seq = seq;
        item.token_count = static_cast<uint32_t>(tokens.size());
        quire_step_result result{};
        quire_step step = 0;
        must(api.step_begin(cache, &desc, &item, 1, sizeof item, tokens.data(), item.token_count,
                            &result, sizeof result, &step, &error_));
        must(api.step_commit(cache, step, nullptr, &error_));
        if (follower != nullptr) send_log(step, nullptr);
        must(api.step_finish(cache, step, nullptr, QUIRE_STEP_OK, &error_));
    }

    // Gives the step's log to the follower. Returns its bytes.
    uint64_t read_log(quire_step step) {
        uint64_t size = 0;
        must(api.step_log(cache, step, log_.data(), log_.size(), &size, &error_));
        return size;
    }
    void apply_log(uint64_t size, quire_batch *batch) {
        auto desc = described<quire_step_desc>();
        quire_step applied = 0;
        follower->must(api.log_apply(follower->cache, log_.data(), size, &desc, batch, &applied,
                                     follower->error()));
        follower->must(
            api.step_finish(follower->cache, applied, nullptr, QUIRE_STEP_OK, follower->error()));
    }
    void send_log(quire_step step, quire_batch *batch) { apply_log(read_log(step), batch); }

    const quire_api &api = library();
    quire_cache *cache = nullptr;
    Client *follower = nullptr;

 private:
    quire_instance *instance_ = nullptr;
    quire_error error_{};
    std::vector<uint8_t> log_ = std::vector<uint8_t>(1 << 20);
};

}  // namespace quire::bench
