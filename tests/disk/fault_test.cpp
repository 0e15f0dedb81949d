// SPDX-License-Identifier: Apache-2.0
//
// Calls of the disk that fail: each one of a script in turn, in each way. A request is then
// answered FAILED or FULL, and no other record is lost or wrong.

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <thread>
#include <utility>

#include "effort.hpp"
#include "scene.hpp"

namespace quire::disk::tests {

namespace {

struct Case {
    Durability durability;
    Fault fault;
    bool is_forever;
};

// The last version of each key that was answered DONE; 0: removed, or never put.
struct Expected {
    std::map<uint64_t, uint64_t> versions;
    std::map<uint64_t, std::set<uint64_t>> tried;  // all versions, also of puts that failed
    std::set<uint64_t> uncertain;                  // a change of it failed
};

constexpr uint64_t kKeys = 12;

uint64_t size_of(uint64_t key, uint64_t version) {
    return 200 + (key * 37 + version * 1009) % 9000;
}

// Puts, removals, flushes and compactions over several segments. Returns false if the store did not
// open.
bool run_script(const Options &options, const std::shared_ptr<Memory> &memory, Expected *expected) {
    quire_error error{};
    error.struct_size = sizeof error;
    std::unique_ptr<Session> session = Session::open(options, memory, &error);
    if (session == nullptr) return false;
    for (uint64_t step = 0; step < 90; ++step) {
        uint64_t key = step * 5 % kKeys;
        uint64_t version = step + 1;
        if (session->has(label_of(key)) && step % 3 == 0) {
            quire_store_answer answer = session->ask(QUIRE_STORE_REMOVE, label_of(key));
            if (answer.outcome == QUIRE_STORE_DONE)
                expected->versions[key] = 0;
            else
                expected->uncertain.insert(key);
        } else if (!session->has(label_of(key))) {
            expected->tried[key].insert(version);
            quire_store_answer answer =
                session->put(label_of(key), value_of(key, version, size_of(key, version)));
            if (answer.outcome == QUIRE_STORE_DONE) {
                expected->versions[key] = version;
                expected->uncertain.erase(key);
            } else {
                // Its bytes may be on the disk nevertheless.
                expected->uncertain.insert(key);
                EXPECT_TRUE(answer.outcome == QUIRE_STORE_FULL ||
                            answer.outcome == QUIRE_STORE_FAILED);
                EXPECT_NE(answer.native_code, 0);
            }
        }
        if (step % 20 == 19) session->ask(QUIRE_STORE_COMPACT);
        if (step % 16 == 15) session->ask(QUIRE_STORE_FLUSH);
        EXPECT_LE(memory->total_bytes(), options.capacity_bytes);
    }
    memory->is_paused = true;
    session->ask(QUIRE_STORE_FLUSH);  // after which no eviction is under way
    for (const std::string &key : session->gone) {
        for (uint64_t i = 0; i < kKeys; ++i) {
            if (key_of(label_of(i)) == key) expected->uncertain.insert(i);
        }
    }
    // All that the open store says it has, it has.
    for (uint64_t key = 0; key < kKeys; ++key) {
        uint64_t version = expected->versions[key];
        if (!session->has(label_of(key))) {
            EXPECT_TRUE(version == 0 || expected->uncertain.contains(key)) << "key " << key;
            continue;
        }
        EXPECT_NE(version, 0u);
        EXPECT_EQ(session->get(label_of(key)), value_of(key, version, size_of(key, version)));
    }
    memory->is_paused = false;
    return true;
}

void verify(const Options &options, const std::shared_ptr<Memory> &memory, Expected *expected) {
    Session session(options, memory);
    for (uint64_t key = 0; key < kKeys; ++key) {
        uint64_t version = expected->versions[key];
        std::optional<Bytes> value = session.get(label_of(key));
        bool is_right = version != 0 && value == value_of(key, version, size_of(key, version));
        bool is_older = !value.has_value();
        for (uint64_t tried : expected->tried[key]) {
            is_older = is_older || value == value_of(key, tried, size_of(key, tried));
        }
        EXPECT_TRUE(is_older) << "key " << key << " has bytes that were never put";
        if (expected->uncertain.contains(key)) continue;
        EXPECT_TRUE(version == 0 ? !value.has_value() : is_right)
            << "key " << key << " version " << version << " is there: " << value.has_value();
    }
}

class DiskFault : public testing::TestWithParam<Case> {};

std::string name_of(const testing::TestParamInfo<Case> &info) {
    const char *durabilities[] = {"none", "segment", "record"};
    const char *faults[] = {"none", "io_error", "no_space", "short_write"};
    return std::string(durabilities[static_cast<int>(info.param.durability)]) + "_" +
           faults[static_cast<int>(info.param.fault)] + (info.param.is_forever ? "_for_ever" : "");
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (Durability durability : {Durability::none, Durability::segment, Durability::record}) {
        for (Fault fault : {Fault::io_error, Fault::no_space, Fault::short_write}) {
            for (bool is_forever : {false, true}) all.push_back({durability, fault, is_forever});
        }
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(Each, DiskFault, testing::ValuesIn(cases()), name_of);

TEST_P(DiskFault, each_call_that_fails_costs_no_other_record) {
    Options options = small_options();
    options.durability = GetParam().durability;
    options.capacity_bytes = 256 * kKiB;
    // Failures that another case has too are sampled in a usual run.
    bool is_main = GetParam().fault == Fault::io_error && !GetParam().is_forever;
    uint64_t step = is_main ? 1 : quire::tests::chosen({1, 3, 7});
    uint64_t n = quire::tests::run_seed() % step, count = 0;
    for (;; n += step, ++count) {
        SCOPED_TRACE("the failing call is number " + std::to_string(n));
        auto memory = std::make_shared<Memory>();
        if (GetParam().fault == Fault::short_write) memory->only_call = "write";
        memory->fail_at(n, GetParam().fault, GetParam().is_forever);
        Expected expected;
        run_script(options, memory, &expected);
        bool was_hit = memory->has_failed();
        memory->fail_never();
        verify(options, memory, &expected);
        if (HasFailure()) return;
        if (!was_hit && n > 20) break;
    }
    std::printf("%s: %llu calls failed in turn\n", name_of({GetParam(), 0}).c_str(),
                static_cast<unsigned long long>(count));
}

TEST(DiskFaults, a_disk_that_fails_every_write_costs_no_record) {
    for (const char *call : {"write", "open", "allocate", "sync", "sync_directory", "remove"}) {
        Options options = small_options();
        options.capacity_bytes = 512 * kKiB;
        options.durability = Durability::record;
        auto memory = std::make_shared<Memory>();
        Session session(options, memory);
        // Full, so that each new segment needs room.
        for (uint64_t i = 0; i < 200; ++i) session.put(label_of(i), value_of(i, 0, 3000));
        std::vector<quire_store_record> before = session.list();
        memory->only_call = call;
        memory->fail_at(0, Fault::io_error, true);
        session.gone.clear();
        uint64_t failed = 0;
        for (uint64_t i = 1000; i < 1300; ++i) {
            failed += session.put(label_of(i), value_of(i, 0, 3000)).outcome != QUIRE_STORE_DONE;
        }
        EXPECT_GT(failed, std::string(call) == "remove" ? 200u : 250u) << call;
        memory->fail_never();
        uint64_t kept = 0;
        for (const quire_store_record &record : before) kept += session.has(record.label);
        // Those of the head may go with a failed sync of it, and those of a segment that was
        // dropped before its file could not be removed.
        EXPECT_GE(kept + 2 * 15, before.size()) << call;
        EXPECT_EQ(session.put(label_of(5000), value_of(5000, 0, 3000)).outcome,
                  uint32_t{QUIRE_STORE_DONE})
            << call;
        EXPECT_LE(memory->total_bytes(), options.capacity_bytes);
    }
}

TEST(DiskFaults, a_failed_sync_takes_back_what_may_be_lost) {
    Options options = small_options();
    auto memory = std::make_shared<Memory>();
    Session session(options, memory);
    session.put(label_of(1), value_of(1, 0, 3000));
    EXPECT_EQ(session.ask(QUIRE_STORE_FLUSH).outcome, uint32_t{QUIRE_STORE_DONE});
    session.put(label_of(2), value_of(2, 0, 3000));
    memory->only_call = "sync";
    memory->fail_at(0, Fault::io_error, false);
    quire_store_answer answer = session.ask(QUIRE_STORE_FLUSH);
    EXPECT_EQ(answer.outcome, uint32_t{QUIRE_STORE_FAILED});
    EXPECT_EQ(answer.native_code, EIO);
    EXPECT_TRUE(session.has(label_of(1)));
    EXPECT_FALSE(session.has(label_of(2)));
    EXPECT_TRUE(session.gone.contains(key_of(label_of(2))));
    EXPECT_EQ(session.ask(QUIRE_STORE_FLUSH).outcome, uint32_t{QUIRE_STORE_DONE});
    session.put(label_of(2), value_of(2, 0, 3000));
    EXPECT_EQ(session.get(label_of(2)), value_of(2, 0, 3000));
}

// Transfers within start(), but for syncs that the test holds up.
class HoldingIo : public DataIo {
 public:
    void start(Transfer *transfer) override {
        if (transfer->kind != TransferKind::sync || !holds.exchange(false)) {
            return io_->start(transfer);
        }
        held = transfer;
    }
    const char *name() const override { return "holding"; }
    void fail() {
        Transfer *transfer = held.exchange(nullptr);
        transfer->result = -EIO;
        transfer->done(transfer);
    }

    std::atomic<bool> holds{false};  // the next sync
    std::atomic<Transfer *> held{nullptr};

 private:
    const std::unique_ptr<DataIo> io_ = make_inline_io();
};

TEST(DiskFaults, a_failed_sync_fails_no_later_flush) {
    Options options = small_options();
    options.durability = Durability::record;
    auto io = std::make_unique<HoldingIo>();
    HoldingIo &disk = *io;
    Session session(options, std::make_shared<Memory>(), std::move(io));
    EXPECT_EQ(session.put(label_of(1), value_of(1, 0, 3000)).outcome, uint32_t{QUIRE_STORE_DONE});
    disk.holds = true;
    // The second one is written while the sync of the first is under way.
    Bytes value = value_of(2, 0, 3000);
    quire_store_piece piece{value.data(), value.size()};
    for (uint64_t i = 2; i < 4; ++i) {
        quire_store_request request{};
        request.kind = QUIRE_STORE_PUT;
        request.label = label_of(i);
        request.pieces = &piece;
        request.piece_count = 1;
        const uint64_t written = session.stats().written_bytes;
        ASSERT_EQ(session.store().submit(&request, 1, sizeof request), 1u);
        while (session.stats().written_bytes == written) std::this_thread::yield();
    }
    while (disk.held == nullptr) std::this_thread::yield();
    disk.fail();
    std::vector<quire_store_answer> answers;
    while (answers.size() < 2) {
        ASSERT_TRUE(session.wait());
        session.reap(&answers);
    }
    for (const quire_store_answer &answer : answers) {
        EXPECT_EQ(answer.outcome, uint32_t{QUIRE_STORE_FAILED});
    }
    EXPECT_EQ(session.ask(QUIRE_STORE_FLUSH).outcome, uint32_t{QUIRE_STORE_DONE});
    EXPECT_EQ(session.put(label_of(2), value).outcome, uint32_t{QUIRE_STORE_DONE});
    EXPECT_EQ(session.ask(QUIRE_STORE_FLUSH).outcome, uint32_t{QUIRE_STORE_DONE});
    EXPECT_EQ(session.get(label_of(2)), value);
}

TEST(DiskFaults, a_failed_read_is_not_damage) {
    auto memory = std::make_shared<Memory>();
    Session session(small_options(), memory);
    session.put(label_of(1), value_of(1, 0, 3000));
    memory->only_call = "read";
    memory->fail_at(0, Fault::io_error, false);
    quire_store_answer answer{};
    EXPECT_FALSE(session.get(label_of(1), 3000, &answer));
    EXPECT_EQ(answer.outcome, uint32_t{QUIRE_STORE_FAILED});
    EXPECT_EQ(answer.native_code, EIO);
    EXPECT_EQ(session.stats().failed_reads, 1u);
    EXPECT_EQ(session.get(label_of(1)), value_of(1, 0, 3000));
}

TEST(DiskFaults, a_full_disk_is_told_as_such) {
    auto memory = std::make_shared<Memory>();
    Session session(small_options(), memory);
    session.put(label_of(1), value_of(1, 0, 3000));
    memory->only_call = "write";
    memory->fail_at(0, Fault::no_space, false);
    quire_store_answer answer = session.put(label_of(2), value_of(2, 0, 3000));
    EXPECT_EQ(answer.outcome, uint32_t{QUIRE_STORE_FULL});
    EXPECT_EQ(answer.native_code, ENOSPC);
    EXPECT_EQ(session.stats().puts_refused, 1u);
    EXPECT_EQ(session.put(label_of(2), value_of(2, 0, 3000)).outcome, uint32_t{QUIRE_STORE_DONE});
    EXPECT_EQ(session.get(label_of(2)), value_of(2, 0, 3000));
}

}  // namespace

}  // namespace quire::disk::tests
