// SPDX-License-Identifier: Apache-2.0
//
// leased: the calls of lease.h on a Manager's cache, with short names for tests. After every call
// the library's own check runs.
//
// Threads: none.
#pragma once

#include <cstddef>

#include "manager.hpp"

namespace quire::test {

struct Answer {
    quire_status status = QUIRE_OK;
    Blocks ids;
    quire_lease_result result = described<quire_lease_result>();
};

class Leased {
 public:
    explicit Leased(Manager *m, quire_namespace ns = 0, std::vector<quire_key> keys = {}) : m_(*m) {
        auto desc = described<quire_lease_desc>();
        desc.ns = ns;
        desc.keys = keys.data();
        desc.key_count = static_cast<uint32_t>(keys.size());
        desc.key_stride = sizeof(quire_key);
        EXPECT_EQ(api().lease_create(m_.cache(), &desc, &lease, m_.error()), QUIRE_OK)
            << m_.message();
        m_.check();
    }

    // With handle 0, which no lease has.
    static Leased none(Manager *m) { return Leased(m, nullptr); }

    quire_status end() { return checked(api().lease_end(m_.cache(), lease, m_.error())); }
    Answer take(uint32_t count, uint32_t group = 0) {
        Answer out;
        out.ids.resize(count);
        out.status = checked(api().lease_take(m_.cache(), m_.open(), lease, group, count,
                                              out.ids.data(), &out.result, m_.error()));
        return out;
    }
    quire_status give(const Blocks &ids, uint32_t group = 0) {
        return checked(api().lease_give(m_.cache(), m_.open(), lease, group, ids.data(),
                                        static_cast<uint32_t>(ids.size()), m_.error()));
    }
    Answer pin(const Blocks &ids, uint32_t group = 0) {
        Answer out;
        out.status =
            checked(api().lease_pin(m_.cache(), m_.open(), lease, group, ids.data(),
                                    static_cast<uint32_t>(ids.size()), &out.result, m_.error()));
        return out;
    }
    // The blocks of all groups, place by place.
    Answer match(const Tokens &tokens, uint32_t how = QUIRE_MATCH_LOOK, uint32_t groups = 1) {
        Answer out;
        out.ids.resize(tokens.size() * groups + 1);
        out.status = checked(api().lease_match(
            m_.cache(), how == QUIRE_MATCH_PIN ? m_.open() : 0, lease, tokens.data(),
            static_cast<uint32_t>(tokens.size()), how, out.ids.data(), &out.result, m_.error()));
        out.ids.resize(uint64_t{out.result.blocks} * groups);
        return out;
    }
    Answer publish(const Tokens &tokens, const Blocks &ids) {
        Answer out;
        out.ids.resize(ids.size());
        out.status = checked(api().lease_publish(m_.cache(), m_.open(), lease, tokens.data(),
                                                 static_cast<uint32_t>(tokens.size()), ids.data(),
                                                 out.ids.data(), &out.result, m_.error()));
        return out;
    }
    Answer find(const std::vector<int64_t> &tokens, uint32_t how = QUIRE_MATCH_LOOK) {
        Answer out;
        out.ids.resize(tokens.size() + 1);
        out.status = checked(api().lease_find(m_.cache(), lease, tokens.data(),
                                              static_cast<uint32_t>(tokens.size()), how,
                                              out.ids.data(), &out.result, m_.error()));
        out.ids.resize(out.result.blocks);
        return out;
    }
    Answer insert(const std::vector<int64_t> &tokens, const std::vector<int64_t> &slots,
                  uint32_t block_tokens = 4) {
        Answer out;
        out.ids.resize(tokens.size() / block_tokens);
        out.status = checked(api().lease_insert(m_.cache(), lease, tokens.data(), slots.data(),
                                                static_cast<uint32_t>(tokens.size()),
                                                out.ids.data(), &out.result, m_.error()));
        return out;
    }
    // Takes blocks for the caller, in a step of their own.
    Blocks take_in_a_step(uint32_t count) {
        m_.begin();
        Answer taken = take(count);
        EXPECT_EQ(taken.status, QUIRE_OK) << m_.message();
        m_.finish(m_.commit());
        return taken.ids;
    }
    quire_status forget(const Blocks &ids, uint32_t *forgotten, uint32_t group = 0) {
        return checked(api().lease_forget(m_.cache(), lease, group, ids.data(),
                                          static_cast<uint32_t>(ids.size()), forgotten,
                                          m_.error()));
    }
    quire_lease_info info() {
        auto out = described<quire_lease_info>();
        EXPECT_EQ(api().lease_get_info(m_.cache(), lease, &out, m_.error()), QUIRE_OK)
            << m_.message();
        return out;
    }
    std::vector<quire_lease_block> blocks(uint32_t group = 0) {
        std::vector<quire_lease_block> out(4096);
        uint32_t count = 0;
        EXPECT_EQ(api().lease_blocks(m_.cache(), lease, group, 0, out.data(), 4096, sizeof out[0],
                                     &count, m_.error()),
                  QUIRE_OK)
            << m_.message();
        out.resize(count);
        return out;
    }
    // Takes blocks for the tokens and publishes them, in a step of their own.
    Blocks fill(const Tokens &tokens, uint32_t block_tokens = 4, uint64_t queue = 0) {
        m_.begin({.queue = queue});
        Answer taken = take(static_cast<uint32_t>(tokens.size()) / block_tokens);
        EXPECT_EQ(taken.status, QUIRE_OK) << m_.message();
        Answer named = publish(tokens, taken.ids);
        EXPECT_EQ(named.status, QUIRE_OK) << m_.message();
        m_.finish(m_.commit());
        return named.ids;
    }
    quire_status give_in_a_step(const Blocks &ids) {
        m_.begin();
        quire_status given = give(ids);
        m_.finish(m_.commit());
        return given;
    }

    quire_lease lease = 0;

 private:
    Leased(Manager *m, std::nullptr_t) : m_(*m) {}

    const quire_api &api() const { return m_.api(); }
    quire_status checked(quire_status status) {
        m_.check();
        return status;
    }

    Manager &m_;
};

// As engines keep them.
inline std::vector<int64_t> wide(const Tokens &tokens) { return {tokens.begin(), tokens.end()}; }
inline std::vector<int64_t> slots_of(const Blocks &blocks, uint32_t block_tokens = 4) {
    std::vector<int64_t> slots;
    for (int32_t block : blocks)
        for (uint32_t i = 0; i < block_tokens; ++i)
            slots.push_back(int64_t{block} * block_tokens + i);
    return slots;
}

inline Blocks evict(Manager &m, uint32_t count, uint32_t group = 0) {
    Blocks ids(count);
    uint32_t evicted = 0;
    EXPECT_EQ(m.api().cache_evict(m.cache(), group, count, ids.data(), &evicted, m.error()),
              QUIRE_OK)
        << m.message();
    m.check();
    ids.resize(evicted);
    return ids;
}

}  // namespace quire::test
