// SPDX-License-Identifier: Apache-2.0
//
// A million handles that are forged, stale or another cache's, in every function that takes one:
// an error, no crash, and an unchanged cache. One table has a function pointer per call, so that a
// function without a row is noticed.
//
// The seed is fixed, so a failure can be repeated.

#include <random>
#include <set>

#include "tests/effort.hpp"
#include "tests/unit/manager.hpp"

namespace {

using namespace quire::test;

constexpr uint64_t kHandles = 1'000'000;  // per function
constexpr uint64_t kShort = 50'000;       // under a sanitizer

// Three equal caches: the one under test, with live and stale objects of every kind, and two more
// with live objects and handles.
struct Population {
    explicit Population(uint32_t sequences) {
        for (uint32_t i = 0; i < sequences; ++i) {
            quire_seq seq = m.sequence();
            m.compute(seq, tokens_from(i, 5));
            (i % 3 == 0 ? ended : live).push_back(seq);
        }
        for (quire_seq seq : ended) m.end(seq);
        for (int i = 0; i < 4; ++i) spaces.push_back(m.name_space());
        for (int i = 0; i < 3; ++i) {
            stale.push_back(m.begin());
            m.abort();
        }
        for (int i = 0; i < 2; ++i) {
            m.begin();
            m.add(live[static_cast<size_t>(i)], {1});
            steps.push_back(m.commit());
        }
        for (int i = 0; i < 3; ++i) {
            auto desc = described<quire_lease_desc>();
            leases.push_back(0);
            EXPECT_EQ(m.api().lease_create(m.cache(), &desc, &leases.back(), m.error()), QUIRE_OK);
        }
        steps.push_back(m.begin());
    }
    Manager m{{.blocks = 256}};
    std::vector<quire_seq> live, ended;
    std::vector<quire_namespace> spaces;
    std::vector<quire_lease> leases;
    std::vector<quire_step> steps, stale;
};

enum class Kind { sequence, step, name_space, lease };

struct Row {
    const char *function;
    Kind kind;
    quire_status (*call)(Manager *m, uint64_t handle);
};

quire_token g_token = 3;

// A call of lease.h on a lease and a step, with one block.
quire_status take(Manager *m, uint64_t step, uint64_t lease) {
    auto result = described<quire_lease_result>();
    int32_t id = 0;
    return m->api().lease_take(m->cache(), step, lease, 0, 1, &id, &result, nullptr);
}
quire_status give(Manager *m, uint64_t step, uint64_t lease) {
    int32_t id = 1;
    return m->api().lease_give(m->cache(), step, lease, 0, &id, 1, nullptr);
}
quire_status pin(Manager *m, uint64_t step, uint64_t lease) {
    auto result = described<quire_lease_result>();
    int32_t id = 1;
    return m->api().lease_pin(m->cache(), step, lease, 0, &id, 1, &result, nullptr);
}
quire_status match(Manager *m, uint64_t step, uint64_t lease) {
    auto result = described<quire_lease_result>();
    int32_t id = 0;
    return m->api().lease_match(m->cache(), step, lease, &g_token, 1, QUIRE_MATCH_LOOK, &id,
                                &result, nullptr);
}
quire_status publish(Manager *m, uint64_t step, uint64_t lease) {
    auto result = described<quire_lease_result>();
    return m->api().lease_publish(m->cache(), step, lease, nullptr, 0, nullptr, nullptr, &result,
                                  nullptr);
}

quire_status find(Manager *m, uint64_t lease) {
    auto result = described<quire_lease_result>();
    const int64_t token = 3;
    int32_t id = 0;
    return m->api().lease_find(m->cache(), lease, &token, 1, QUIRE_MATCH_LOOK, &id, &result,
                               nullptr);
}

const Row kRows[] = {
    {"namespace_destroy", Kind::name_space,
     [](Manager *m, uint64_t h) { return m->api().namespace_destroy(m->cache(), h, nullptr); }},
    {"namespace_get_info", Kind::name_space,
     [](Manager *m, uint64_t h) {
         auto info = described<quire_namespace_info>();
         return m->api().namespace_get_info(m->cache(), h, &info, nullptr);
     }},
    {"seq_create", Kind::name_space,
     [](Manager *m, uint64_t h) {
         auto desc = described<quire_seq_desc>();
         desc.ns = h;
         quire_seq out = 0;
         return m->api().seq_create(m->cache(), &desc, &out, nullptr);
     }},
    {"seq_end", Kind::sequence,
     [](Manager *m, uint64_t h) { return m->api().seq_end(m->cache(), h, 0, nullptr); }},
    {"seq_fork", Kind::sequence,
     [](Manager *m, uint64_t h) {
         quire_seq out = 0;
         return m->api().seq_fork(m->cache(), h, 0, &out, nullptr);
     }},
    {"seq_truncate", Kind::sequence,
     [](Manager *m, uint64_t h) { return m->api().seq_truncate(m->cache(), h, 0, nullptr); }},
    {"seq_accept_path", Kind::sequence,
     [](Manager *m, uint64_t h) {
         return m->api().seq_accept_path(m->cache(), h, nullptr, 0, nullptr);
     }},
    {"seq_accept", Kind::sequence,
     [](Manager *m, uint64_t h) { return m->api().seq_accept(m->cache(), h, 0, nullptr); }},
    {"seq_set_tokens", Kind::sequence,
     [](Manager *m, uint64_t h) {
         quire_token_span span{h, 0, 0, 1, 0};
         return m->api().seq_set_tokens(m->cache(), &span, 1, sizeof span, &g_token, 1, nullptr);
     }},
    {"seq_export_wait", Kind::sequence,
     [](Manager *m, uint64_t h) {
         auto desc = described<quire_export_desc>();
         desc.write = [](void *, const void *, uint64_t) -> quire_status { return QUIRE_OK; };
         return m->api().seq_export_wait(m->cache(), h, &desc, nullptr, 0, nullptr);
     }},
    {"seq_save_wait", Kind::sequence,
     [](Manager *m, uint64_t h) {
         auto desc = described<quire_export_desc>();
         return m->api().seq_save_wait(m->cache(), h, &desc, "/dev/shm/no-session", nullptr, 0,
                                       nullptr);
     }},
    {"cache_cancel_load", Kind::sequence,
     [](Manager *m, uint64_t h) { return m->api().cache_cancel_load(m->cache(), h, nullptr); }},
    {"seq_get_info", Kind::sequence,
     [](Manager *m, uint64_t h) {
         auto info = described<quire_seq_info>();
         return m->api().seq_get_info(m->cache(), h, &info, nullptr);
     }},
    {"prefix_probe", Kind::sequence,
     [](Manager *m, uint64_t h) {
         uint32_t hits = 0;
         return m->api().prefix_probe(m->cache(), h, &g_token, 1, &hits, nullptr);
     }},
    {"step_add", Kind::sequence,
     [](Manager *m, uint64_t h) {
         quire_step_item item{h, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0};
         quire_step_result result{};
         return m->api().step_add(m->cache(), m->open(), &item, 1, sizeof item, &g_token, 1,
                                  &result, sizeof result, nullptr);
     }},
    {"step_add", Kind::step,
     [](Manager *m, uint64_t h) {
         quire_step_result result{};
         return m->api().step_add(m->cache(), h, nullptr, 0, 0, nullptr, 0, &result, sizeof result,
                                  nullptr);
     }},
    {"step_drop", Kind::sequence,
     [](Manager *m, uint64_t h) {
         uint32_t count = 0;
         quire_seq out = 0;
         return m->api().step_drop(m->cache(), m->open(), h, &out, 1, &count, nullptr);
     }},
    {"step_drop", Kind::step,
     [](Manager *m, uint64_t h) {
         uint32_t count = 0;
         quire_seq out = 0;
         return m->api().step_drop(m->cache(), h, 0, &out, 1, &count, nullptr);
     }},
    {"step_preempt", Kind::sequence,
     [](Manager *m, uint64_t h) {
         uint32_t freed = 0;
         return m->api().step_preempt(m->cache(), m->open(), h, 0, &freed, nullptr);
     }},
    {"step_preempt", Kind::step,
     [](Manager *m, uint64_t h) {
         uint32_t freed = 0;
         return m->api().step_preempt(m->cache(), h, 0, 0, &freed, nullptr);
     }},
    {"step_preempted", Kind::step,
     [](Manager *m, uint64_t h) {
         uint32_t count = 0;
         return m->api().step_preempted(m->cache(), h, nullptr, 0, 0, &count, nullptr);
     }},
    {"step_abort", Kind::step,
     [](Manager *m, uint64_t h) { return m->api().step_abort(m->cache(), h, nullptr); }},
    {"step_commit", Kind::step,
     [](Manager *m, uint64_t h) { return m->api().step_commit(m->cache(), h, nullptr, nullptr); }},
    {"step_finish", Kind::step,
     [](Manager *m, uint64_t h) {
         return m->api().step_finish(m->cache(), h, nullptr, QUIRE_STEP_OK, nullptr);
     }},
    {"handover_send", Kind::sequence,
     [](Manager *m, uint64_t h) {
         auto desc = described<quire_handover_send_desc>();
         quire_handover out = 0;
         return m->api().handover_send(m->cache(), h, &desc, &out, nullptr);
     }},
    // No hand-over of these caches is live, so any handle is forged.
    {"handover_layers", Kind::step,
     [](Manager *m, uint64_t h) {
         return m->api().handover_layers(m->cache(), h, m->open(), 0, 1, nullptr);
     }},
    {"handover_read", Kind::step,
     [](Manager *m, uint64_t h) {
         uint64_t size = 0;
         return m->api().handover_read(m->cache(), h, nullptr, 0, &size, nullptr, nullptr);
     }},
    {"handover_write", Kind::step,
     [](Manager *m, uint64_t h) {
         uint64_t used = 0;
         return m->api().handover_write(m->cache(), h, nullptr, 0, &used, nullptr, nullptr);
     }},
    {"handover_end", Kind::step,
     [](Manager *m, uint64_t h) { return m->api().handover_end(m->cache(), h, nullptr); }},
    // Step 0 means the sequence's current blocks, so 0 is not a forgery there.
    {"step_blocks", Kind::sequence,
     [](Manager *m, uint64_t h) {
         uint32_t count = 0;
         return m->api().step_blocks(m->cache(), 0, h, 0, 0, nullptr, 0, &count, nullptr);
     }},
    {"step_copies", Kind::step,
     [](Manager *m, uint64_t h) {
         uint32_t count = 0;
         return m->api().step_copies(m->cache(), h, nullptr, 0, 0, &count, nullptr);
     }},
    {"step_log", Kind::step,
     [](Manager *m, uint64_t h) {
         uint64_t size = 0;
         return m->api().step_log(m->cache(), h, nullptr, 0, &size, nullptr);
     }},
    {"lease_create", Kind::name_space,
     [](Manager *m, uint64_t h) {
         auto desc = described<quire_lease_desc>();
         desc.ns = h;
         quire_lease out = 0;
         return m->api().lease_create(m->cache(), &desc, &out, nullptr);
     }},
    {"lease_end", Kind::lease,
     [](Manager *m, uint64_t h) { return m->api().lease_end(m->cache(), h, nullptr); }},
    {"lease_get_info", Kind::lease,
     [](Manager *m, uint64_t h) {
         auto info = described<quire_lease_info>();
         return m->api().lease_get_info(m->cache(), h, &info, nullptr);
     }},
    {"lease_blocks", Kind::lease,
     [](Manager *m, uint64_t h) {
         uint32_t count = 0;
         return m->api().lease_blocks(m->cache(), h, 0, 0, nullptr, 0, 0, &count, nullptr);
     }},
    {"lease_forget", Kind::lease,
     [](Manager *m, uint64_t h) {
         uint32_t count = 0;
         return m->api().lease_forget(m->cache(), h, 0, nullptr, 0, &count, nullptr);
     }},
    {"lease_take", Kind::lease, [](Manager *m, uint64_t h) { return take(m, m->open(), h); }},
    {"lease_take", Kind::step, [](Manager *m, uint64_t h) { return take(m, h, 0); }},
    {"lease_give", Kind::lease, [](Manager *m, uint64_t h) { return give(m, m->open(), h); }},
    {"lease_give", Kind::step, [](Manager *m, uint64_t h) { return give(m, h, 0); }},
    {"lease_pin", Kind::lease, [](Manager *m, uint64_t h) { return pin(m, m->open(), h); }},
    {"lease_pin", Kind::step, [](Manager *m, uint64_t h) { return pin(m, h, 0); }},
    {"lease_match", Kind::lease, [](Manager *m, uint64_t h) { return match(m, 0, h); }},
    {"lease_match", Kind::step, [](Manager *m, uint64_t h) { return match(m, h, 0); }},
    {"lease_find", Kind::lease, find},
    {"lease_insert", Kind::lease,
     [](Manager *m, uint64_t h) {
         auto result = described<quire_lease_result>();
         return m->api().lease_insert(m->cache(), h, nullptr, nullptr, 0, nullptr, &result,
                                      nullptr);
     }},
    {"lease_publish", Kind::lease, [](Manager *m, uint64_t h) { return publish(m, m->open(), h); }},
    {"lease_publish", Kind::step, [](Manager *m, uint64_t h) { return publish(m, h, 0); }},
};

// Draws values that are not live handles of the cache: any bits, live handles with a few bits
// changed, handles of another kind, ended ones, and another cache's.
class Forger {
 public:
    Forger(const Population &p, const Population &other, uint64_t seed) : random_(seed) {
        for (const auto *list : {&p.live, &p.spaces, &p.steps, &p.leases}) {
            real_.insert(real_.end(), list->begin(), list->end());
        }
        for (const auto *list : {&p.ended, &p.stale, &other.live, &other.ended, &other.spaces,
                                 &other.steps, &other.stale, &other.leases}) {
            wrong_.insert(wrong_.end(), list->begin(), list->end());
        }
        kept_.insert(real_.begin(), real_.end());
        kept_.insert(p.spaces[0] - 1);  // the default namespace, which 0 names too
    }
    uint64_t draw() {
        for (;;) {
            uint64_t handle = any();
            // Namespace 0 always exists.
            if (handle != 0 && !kept_.contains(handle)) return handle;
        }
    }

 private:
    uint64_t any() {
        switch (random_() % 5) {
            case 0:
                return random_();
            case 1:
                return real_[random_() % real_.size()] ^ (uint64_t{1} << random_() % 64);
            case 2:
                return real_[random_() % real_.size()] ^ (random_() & random_() & random_());
            case 3:
                return real_[random_() % real_.size()] + random_() % 16 - 8;
            default:
                return wrong_[random_() % wrong_.size()];
        }
    }
    std::mt19937_64 random_;
    std::vector<uint64_t> real_, wrong_;
    std::set<uint64_t> kept_;
};

uint64_t handle_count() { return quire::tests::chosen({kHandles, kHandles, kShort}); }

// Counts the calls that returned anything but stale.
template <typename Call>
uint64_t not_refused(Forger *forger, uint64_t count, Call &&call) {
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < count; ++i) {
        if (call(forger->draw()) != QUIRE_E_STALE) ++wrong;
    }
    return wrong;
}

TEST(HandleByTheMillion, what_is_no_live_handle_is_stale_everywhere_and_changes_nothing) {
    Population asked(30), other(40);
    Forger forger(asked, other, 1);
    std::string before = asked.m.books();
    for (const Row &row : kRows) {
        uint64_t wrong = not_refused(&forger, handle_count(),
                                     [&](uint64_t handle) { return row.call(&asked.m, handle); });
        EXPECT_EQ(wrong, 0u) << row.function;
        EXPECT_EQ(asked.m.books(), before) << row.function;
        asked.m.check();
    }
}

// A handle of the right cache but of another kind is invalid.
TEST(HandleByTheMillion, a_handle_of_another_kind_is_stale) {
    Population asked(6);
    for (const Row &row : kRows) {
        if (row.kind != Kind::sequence) {
            EXPECT_LT(row.call(&asked.m, asked.live[3]), 0);
        }
        if (row.kind != Kind::step) {
            EXPECT_LT(row.call(&asked.m, asked.steps[0]), 0);
        }
        if (row.kind != Kind::name_space) {
            EXPECT_LT(row.call(&asked.m, asked.spaces[0]), 0);
        }
        if (row.kind != Kind::lease) {
            EXPECT_LT(row.call(&asked.m, asked.leases[0]), 0);
        }
    }
}

TEST(HandleByTheMillion, every_function_that_takes_a_handle_has_a_row) {
    std::set<std::string> rows, wanted;
    for (const Row &row : kRows) rows.insert(row.function);
#define QUIRE_TAKES(name, parameters)                                              \
    if (std::string(#parameters).find("quire_seq seq") != std::string::npos ||     \
        std::string(#parameters).find("quire_step step") != std::string::npos ||   \
        std::string(#parameters).find("quire_lease lease") != std::string::npos || \
        std::string(#parameters).find("quire_handover h") != std::string::npos ||  \
        std::string(#parameters).find("quire_namespace ns") != std::string::npos)  \
        wanted.insert(#name);
    QUIRE_API_LIST(QUIRE_TAKES)
#undef QUIRE_TAKES
    // In a struct, and in an array's elements.
    wanted.insert({"seq_create", "lease_create", "seq_set_tokens"});
    EXPECT_EQ(rows, wanted);
    EXPECT_GT(wanted.size(), 15u);
}

// The search itself works: it would notice a cache that took one forged handle in a thousand.
TEST(HandleByTheMillion, a_handle_that_gets_through_is_counted) {
    Population asked(6), other(6);
    Forger forger(asked, other, 2);
    uint64_t calls = 0;
    EXPECT_EQ(not_refused(&forger, 10'000,
                          [&](uint64_t) {
                              return ++calls % 1000 == 0 ? quire_status{QUIRE_OK}
                                                         : quire_status{QUIRE_E_STALE};
                          }),
              10u);
}

// Every function, each with NULL in place of its object.
template <typename... Rest>
quire_status with_null(quire_status (*function)(Rest...)) {
    return function(Rest{}...);
}

TEST(NullPointer, in_every_argument_of_every_function_is_an_error) {
#define QUIRE_WITH_NULL(name, parameters) \
    EXPECT_EQ(with_null(library().name), QUIRE_E_ARG) << #name;
    QUIRE_API_LIST(QUIRE_WITH_NULL)
#undef QUIRE_WITH_NULL
}

TEST(NullPointer, the_argument_is_named) {
    Manager m;
    auto said = [&](quire_status status) {
        EXPECT_EQ(status, QUIRE_E_ARG);
        return m.message();
    };
    quire_seq seq = m.sequence();
    EXPECT_EQ(said(m.api().seq_fork(m.cache(), seq, 0, nullptr, m.error())),
              "quire_seq_fork: out is NULL");
    EXPECT_EQ(said(m.api().prefix_probe(m.cache(), seq, nullptr, 1, nullptr, m.error())),
              "quire_prefix_probe: hit_tokens is NULL");
    EXPECT_EQ(said(m.api().seq_create(m.cache(), nullptr, &seq, m.error())),
              "quire_seq_create: quire_seq_desc is NULL");
    EXPECT_EQ(said(m.api().seq_end(nullptr, seq, 0, m.error())), "quire_seq_end: cache is NULL");
    EXPECT_EQ(said(m.api().queue_sync(nullptr, m.error())), "quire_queue_sync: queue is NULL");
}

}  // namespace
