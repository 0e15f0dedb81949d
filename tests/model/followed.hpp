// SPDX-License-Identifier: Apache-2.0
//
// followed: a follower of the cache on which a script plays: it applies the log of every step, and
// must have the leader's sequences and tables.
#pragma once

#include <quire/quire.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace quire::model {

class Followed {
 public:
    explicit Followed(const quire_api &api) : api_(api) { error_.struct_size = sizeof error_; }
    ~Followed() {
        for (auto &[leaders, own] : steps_) {
            api_.step_finish(cache_, own, nullptr, QUIRE_STEP_OK, nullptr);
        }
        if (cache_ != nullptr && api_.cache_destroy(cache_, &error_) < 0) std::abort();
    }
    Followed(const Followed &) = delete;
    Followed &operator=(const Followed &) = delete;

    // These functions return what went wrong, or an empty string.
    std::string create(quire_instance *instance, quire_cache_desc desc) {
        desc.flags = QUIRE_CACHE_FOLLOWER;
        group_count_ = desc.group_count;
        return said(api_.cache_create(instance, &desc, &cache_, &error_));
    }
    std::string commit(quire_cache *leader, quire_step step, uint64_t queue) {
        std::vector<uint8_t> log(1 << 14);
        uint64_t size = 0;
        quire_status read = api_.step_log(leader, step, log.data(), log.size(), &size, &error_);
        if (read != QUIRE_OK) return "step_log gave " + std::to_string(read);
        quire_step_desc desc{};
        desc.struct_size = sizeof desc;
        desc.queue_tag = queue;
        quire_step own = 0;
        std::string wrong =
            said(api_.log_apply(cache_, log.data(), size, &desc, nullptr, &own, &error_));
        if (wrong.empty()) steps_[step] = own;
        return wrong;
    }
    std::string finish(quire_step step) {
        quire_step own = steps_[step];
        steps_.erase(step);
        return said(api_.step_finish(cache_, own, nullptr, QUIRE_STEP_OK, &error_));
    }
    // Migrates it like its leader: numbers of blocks stay.
    std::string migrate() {
        quire_migrate_desc desc{};
        desc.struct_size = sizeof desc;
        quire_migrate_info info{};
        info.struct_size = sizeof info;
        return said(api_.cache_migrate(cache_, &desc, &info, &error_));
    }
    std::string compare(quire_cache *leader, quire_seq seq) {
        quire_seq_info infos[2] = {};
        for (int i = 0; i < 2; ++i) {
            infos[i].struct_size = sizeof infos[i];
            quire_status status =
                api_.seq_get_info(i == 0 ? leader : cache_, seq, &infos[i], &error_);
            if (status < 0) return said(status);
        }
        if (std::memcmp(&infos[0], &infos[1], sizeof infos[0]) != 0) {
            return "a follower has another sequence: known " +
                   std::to_string(infos[0].known_tokens) + ", it has " +
                   std::to_string(infos[1].known_tokens);
        }
        for (uint32_t g = 0; g < group_count_; ++g) {
            if (table(leader, seq, g) != table(cache_, seq, g))
                return "a follower has another table";
        }
        return said(api_.cache_check(cache_, &error_));
    }

 private:
    std::string said(quire_status status) const {
        return status >= 0 ? std::string() : std::string("follower: ") + error_.message;
    }
    std::vector<int32_t> table(quire_cache *cache, quire_seq seq, uint32_t group) {
        std::vector<int32_t> ids(128);
        uint32_t count = 0;
        api_.step_blocks(cache, 0, seq, group, 0, ids.data(), 128, &count, &error_);
        ids.resize(count);
        return ids;
    }

    const quire_api &api_;
    quire_cache *cache_ = nullptr;
    uint32_t group_count_ = 0;
    quire_error error_{};
    std::map<quire_step, quire_step> steps_;  // the leader's, its own
};

}  // namespace quire::model
