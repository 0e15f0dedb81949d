// SPDX-License-Identifier: Apache-2.0
//
// Crashes of the machine: after each change of the disk, with each number of the changes that were
// not synced kept, and the next one torn at each 512 bytes. After the reopen each record answers
// its exact value or a miss, and what had to be durable is there.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "effort.hpp"
#include "scene.hpp"

namespace quire::disk::tests {

namespace {

constexpr uint64_t kKeys = 10;
constexpr uint64_t kMiss = 0;  // a version: the key is not there

uint64_t size_of(uint64_t key, uint64_t version) { return 1 + (key * 701 + version * 977) % 9500; }

struct Event {
    bool is_flush = false;
    uint64_t key = kKeys;  // none: a flush, a compaction, a get
    uint64_t version = kMiss;
    uint64_t began_at = 0;  // in changes of the disk
    uint64_t ended_at = UINT64_MAX;
    std::set<std::string> gone;  // while it ran
};

struct Run {
    std::shared_ptr<Memory> memory = std::make_shared<Memory>();
    std::vector<Event> events;
    uint64_t evicted = 0;
};

// A script of puts, removals, gets, flushes and compactions, and what each came to.
Run run_script(const Options &options, uint64_t seed, uint64_t steps) {
    Run run;
    std::mt19937_64 random(seed);
    Session session(options, run.memory);
    for (uint64_t step = 1; step <= steps; ++step) {
        Event event;
        event.began_at = run.memory->operation_count();
        uint64_t key = random() % kKeys;
        uint64_t choice = random() % 16;
        session.gone.clear();
        if (choice == 0) {
            event.is_flush = true;
            EXPECT_EQ(session.ask(QUIRE_STORE_FLUSH).outcome, uint32_t{QUIRE_STORE_DONE});
        } else if (choice == 1) {
            EXPECT_EQ(session.ask(QUIRE_STORE_COMPACT).outcome, uint32_t{QUIRE_STORE_DONE});
        } else if (session.has(label_of(key)) && choice < 5) {
            session.get(label_of(key));
        } else {
            event.key = key;
            bool removes = session.has(label_of(key));
            event.version = removes ? kMiss : step;
            quire_store_answer answer =
                removes ? session.ask(QUIRE_STORE_REMOVE, label_of(key))
                        : session.put(label_of(key), value_of(key, step, size_of(key, step)));
            EXPECT_EQ(answer.outcome, uint32_t{QUIRE_STORE_DONE});
        }
        event.ended_at = run.memory->operation_count();
        event.gone = session.gone;
        run.events.push_back(event);
    }
    run.evicted = session.stats().evicted;
    return run;
}

// The versions of a key that the store may have after a crash before change number `at`.
std::set<uint64_t> allowed(const Run &run, Durability durability, uint64_t key, uint64_t at) {
    size_t durable = 0;  // events before it are
    for (size_t i = 0; i < run.events.size(); ++i) {
        const Event &event = run.events[i];
        bool makes_durable = event.is_flush || durability == Durability::record;
        if (event.ended_at <= at && makes_durable) durable = i + 1;
    }
    std::set<uint64_t> versions = {kMiss};
    std::string name = key_of(label_of(key));
    // An eviction goes on after the change that needed the room was answered; its notices are
    // reaped with a later event, at the latest the next change.
    uint64_t evicted_from = 0;
    for (size_t i = 0; i < run.events.size() && evicted_from < at; ++i) {
        const Event &event = run.events[i];
        if (event.gone.contains(name)) versions.insert(kMiss);
        if (event.key == key && event.began_at < at) {
            if (i < durable) versions.clear();
            versions.insert(event.version);
        }
        if (event.key != kKeys) evicted_from = event.began_at;
    }
    return versions;
}

class Crashes {
 public:
    Crashes(const Options &options, const Run &run) : options_(options), run_(run) {}

    void check(const Crash &crash, bool goes_on) {
        SCOPED_TRACE("crash before change " + std::to_string(crash.at) + ", file " +
                     std::to_string(crash.only_file) + " kept " + std::to_string(crash.kept) +
                     " torn " + std::to_string(crash.torn_bytes) + " names " +
                     std::to_string(crash.kept_names));
        ++count_;
        auto memory = run_.memory->after(crash);
        std::map<uint64_t, std::optional<Bytes>> found;
        uint64_t evicted = 0;
        {
            Session session(options_, memory);
            for (uint64_t key = 0; key < kKeys; ++key) {
                found[key] = session.get(label_of(key));
                check_value(key, found[key], crash.at);
            }
            EXPECT_LE(memory->total_bytes(), options_.capacity_bytes);
            if (!goes_on) return;
            EXPECT_EQ(session.put(label_of(99), value_of(99, 0, 4000)).outcome,
                      uint32_t{QUIRE_STORE_DONE});
            session.ask(QUIRE_STORE_FLUSH);
            evicted = session.stats().evicted;
        }
        Session session(options_, memory);
        EXPECT_EQ(session.get(label_of(99)), value_of(99, 0, 4000));
        for (uint64_t key = 0; key < kKeys; ++key) {
            bool is_same = session.get(label_of(key)) == found[key];
            EXPECT_TRUE(is_same || evicted != 0) << "key " << key << " changed";
        }
    }

    uint64_t count() const { return count_; }

 private:
    void check_value(uint64_t key, const std::optional<Bytes> &value, uint64_t at) {
        std::set<uint64_t> versions = allowed(run_, options_.durability, key, at);
        bool is_allowed = false;
        std::string all;
        for (uint64_t version : versions) {
            all += " " + std::to_string(version);
            is_allowed =
                is_allowed ||
                (version == kMiss ? !value.has_value()
                                  : value == value_of(key, version, size_of(key, version)));
        }
        EXPECT_TRUE(is_allowed) << "key " << key
                                << (value.has_value() ? " is there" : " is missing")
                                << "; allowed:" << all;
    }

    const Options &options_;
    const Run &run_;
    uint64_t count_ = 0;
};

// Every crash right before change number `at`, whose last change is of this file.
void crash_at(Crashes *crashes, const Run &run, uint64_t at) {
    crashes->check({.at = at}, true);
    crashes->check({.at = at, .kept = 0, .kept_names = 0}, true);
    crashes->check({.at = at, .kept = 0}, false);
    Operation last = run.memory->operation(at - 1);
    uint64_t names = run.memory->unsynced(at, UINT64_MAX).size();
    for (uint64_t kept = 0; kept < names; ++kept) {
        crashes->check({.at = at, .kept_names = kept}, false);
    }
    if (last.change != Change::write && last.change != Change::resize) return;
    std::vector<Operation> changes = run.memory->unsynced(at, last.file);
    for (uint64_t kept = 0; kept < changes.size(); ++kept) {
        uint64_t size = changes[kept].bytes.size();
        for (uint64_t torn = 0; torn == 0 || torn < size; torn += 512) {
            crashes->check({.at = at, .kept = kept, .torn_bytes = torn, .only_file = last.file},
                           false);
            if (testing::Test::HasFailure()) return;
        }
    }
}

class DiskCrash : public testing::TestWithParam<Durability> {};

std::string name_of(const testing::TestParamInfo<Durability> &info) {
    const char *names[] = {"none", "segment", "record"};
    return names[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Durability, DiskCrash,
                         testing::Values(Durability::none, Durability::segment, Durability::record),
                         name_of);

// `few_per_run`: crash points per script in a usual run.
void crash_everywhere(const Options &options, uint64_t steps, bool must_evict) {
    uint64_t count = 0, points = 0, evicted = 0;
    for (uint64_t seed : quire::tests::seeds(1, {6, 2, 1})) {
        Run run = run_script(options, seed, steps);
        evicted += run.evicted;
        Crashes crashes(options, run);
        uint64_t all = run.memory->operation_count();
        for (uint64_t at : quire::tests::seeds(1, {all, std::max<uint64_t>(all / 8, 1), 10})) {
            crash_at(&crashes, run, at);
            ++points;
            if (testing::Test::HasFailure()) {
                std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
                return;
            }
        }
        count += crashes.count();
    }
    EXPECT_EQ(must_evict, evicted != 0);
    std::printf("%llu crash points, %llu crashes\n", static_cast<unsigned long long>(points),
                static_cast<unsigned long long>(count));
}

TEST_P(DiskCrash, leaves_exact_values_and_all_that_was_durable) {
    Options options = small_options();
    options.capacity_bytes = 2048 * kKiB;
    options.durability = GetParam();
    crash_everywhere(options, 60, false);
}

TEST_P(DiskCrash, amid_evictions_leaves_exact_values_and_all_that_was_durable) {
    Options options = small_options();
    options.capacity_bytes = 256 * kKiB;
    options.durability = GetParam();
    crash_everywhere(options, 160, true);
}

}  // namespace

}  // namespace quire::disk::tests
