// SPDX-License-Identifier: Apache-2.0
//
// Requests on a real directory, through io_uring and through threads.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "scene.hpp"

namespace quire::disk::tests {

namespace {

uint64_t room_of(const std::string &folder) {
    uint64_t bytes = 0;
    for (const auto &entry : std::filesystem::directory_iterator(folder)) {
        struct stat status{};
        if (::stat(entry.path().c_str(), &status) == 0) {
            bytes += static_cast<uint64_t>(status.st_blocks) * 512;
        }
    }
    return bytes;
}

std::string read_file(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

class DiskStore : public testing::TestWithParam<IoChoice> {
 protected:
    void SetUp() override {
        int reason = 0;
        if (GetParam() == IoChoice::uring && make_uring_io(&reason) == nullptr) {
            GTEST_SKIP() << "no io_uring here: " << std::strerror(reason);
        }
        options = small_options(folder.path());
        options.io = GetParam();
    }
    Folder folder;
    Options options;
};

std::string name_of(const testing::TestParamInfo<IoChoice> &info) {
    return info.param == IoChoice::uring ? "uring" : "threads";
}

INSTANTIATE_TEST_SUITE_P(Io, DiskStore, testing::Values(IoChoice::uring, IoChoice::threads),
                         name_of);

TEST_P(DiskStore, values_of_all_sizes_come_back_also_after_a_reopen) {
    std::vector<uint64_t> sizes = {
        1, 2, 255, 3839, 3840, 3841, 4096, 7936, 7937, 20'000, options.max_value_bytes()};
    {
        Session session(options);
        for (uint64_t size : sizes) {
            EXPECT_EQ(session.put(label_of(size), value_of(size, 0, size)).outcome,
                      uint32_t{QUIRE_STORE_DONE});
        }
        for (uint64_t size : sizes) {
            EXPECT_EQ(session.get(label_of(size), size), value_of(size, 0, size)) << size;
        }
        EXPECT_EQ(session.stats().puts, sizes.size());
    }
    Session session(options);
    EXPECT_EQ(session.stats().recovered, sizes.size());
    for (uint64_t size : sizes) EXPECT_EQ(session.get(label_of(size)), value_of(size, 0, size));
    EXPECT_EQ(session.list().size(), sizes.size());
}

TEST_P(DiskStore, pieces_are_gathered_and_scattered_in_their_order) {
    Session session(options);
    Bytes value = value_of(1, 0, 10'000);
    quire_store_piece pieces[] = {{value.data(), 1},
                                  {value.data() + 1, 0},
                                  {value.data() + 1, 7000},
                                  {value.data() + 7001, 2999}};
    quire_store_request request{};
    request.kind = QUIRE_STORE_PUT;
    request.label = label_of(1);
    request.pieces = pieces;
    request.piece_count = 4;
    EXPECT_EQ(session.run(request).outcome, uint32_t{QUIRE_STORE_DONE});
    EXPECT_EQ(session.get(label_of(1)), value);
    std::memset(value.data(), 0, value.size());
    request.kind = QUIRE_STORE_GET;
    EXPECT_EQ(session.run(request).outcome, uint32_t{QUIRE_STORE_DONE});
    EXPECT_EQ(value, value_of(1, 0, 10'000));
}

TEST_P(DiskStore, a_label_is_told_from_others_of_its_key) {
    Session session(options);
    session.put(label_of(1, 1), value_of(1, 0, 100));
    quire_store_answer answer{};
    EXPECT_FALSE(session.get(label_of(1, 2), 100, &answer));
    EXPECT_EQ(answer.outcome, uint32_t{QUIRE_STORE_FOREIGN});
    EXPECT_FALSE(session.get(label_of(1, 1, 9), 100, &answer));
    EXPECT_EQ(answer.outcome, uint32_t{QUIRE_STORE_FOREIGN});
    EXPECT_FALSE(session.has(label_of(1, 2)));
    // A removal of another label of the key removes nothing.
    EXPECT_EQ(session.ask(QUIRE_STORE_REMOVE, label_of(1, 2)).outcome, uint32_t{QUIRE_STORE_DONE});
    EXPECT_TRUE(session.has(label_of(1, 1)));
    // The newest label of a key stays.
    session.put(label_of(1, 2), value_of(1, 1, 100));
    EXPECT_TRUE(session.has(label_of(1, 2)));
    EXPECT_FALSE(session.has(label_of(1, 1)));
    EXPECT_TRUE(session.gone.contains(key_of(label_of(1))));
    EXPECT_EQ(session.get(label_of(1, 2)), value_of(1, 1, 100));
    EXPECT_EQ(session.stats().records, 1u);
}

TEST_P(DiskStore, a_known_label_is_not_stored_again) {
    Session session(options);
    session.put(label_of(1), value_of(1, 0, 100));
    uint64_t used = session.stats().used_bytes;
    EXPECT_EQ(session.put(label_of(1), value_of(1, 0, 100)).outcome, uint32_t{QUIRE_STORE_DONE});
    EXPECT_EQ(session.stats().used_bytes, used);
    EXPECT_EQ(session.stats().puts_known, 1u);
}

TEST_P(DiskStore, a_removed_value_stays_removed) {
    {
        Session session(options);
        session.put(label_of(1), value_of(1, 0, 100));
        session.put(label_of(2), value_of(2, 0, 100));
        session.ask(QUIRE_STORE_REMOVE, label_of(1));
        EXPECT_EQ(session.ask(QUIRE_STORE_FIND, label_of(1)).outcome, uint32_t{QUIRE_STORE_MISS});
        EXPECT_EQ(session.ask(QUIRE_STORE_FIND, label_of(2)).outcome, uint32_t{QUIRE_STORE_DONE});
        EXPECT_EQ(session.stats().removed, 1u);
    }
    Session session(options);
    EXPECT_FALSE(session.has(label_of(1)));
    EXPECT_TRUE(session.has(label_of(2)));
}

TEST_P(DiskStore, room_never_exceeds_the_capacity) {
    options.capacity_bytes = 320 * kKiB;
    Session session(options);
    for (uint64_t i = 0; i < 300; ++i) {
        uint64_t size = 1 + (i * 7919) % 12'000;
        ASSERT_EQ(session.put(label_of(i), value_of(i, 0, size)).outcome,
                  uint32_t{QUIRE_STORE_DONE});
        if (i % 5 == 4) session.ask(QUIRE_STORE_REMOVE, label_of(i - 2));
        if (i % 50 == 49) session.ask(QUIRE_STORE_COMPACT);
        ASSERT_LE(room_of(folder.path()), options.capacity_bytes) << i;
        ASSERT_LE(session.stats().used_bytes, options.capacity_bytes);
    }
    EXPECT_GT(session.stats().evicted, 0u);
    EXPECT_GT(session.stats().value_bytes, options.capacity_bytes / 4);
    for (uint64_t i = 0; i < 300; ++i) {
        bool is_there = session.has(label_of(i));
        uint64_t size = 1 + (i * 7919) % 12'000;
        if (is_there) {
            EXPECT_EQ(session.get(label_of(i)), value_of(i, 0, size)) << i;
        }
        bool was_removed = i % 5 == 2;
        if (!is_there && !was_removed) {
            EXPECT_TRUE(session.gone.contains(key_of(label_of(i)))) << i;
        }
    }
}

TEST_P(DiskStore, a_smaller_capacity_is_met_at_open) {
    {
        Session session(options);
        for (uint64_t i = 0; i < 150; ++i) session.put(label_of(i), value_of(i, 0, 3000));
    }
    options.capacity_bytes = 256 * kKiB;
    Session session(options);
    session.ask(QUIRE_STORE_FLUSH);
    EXPECT_LE(room_of(folder.path()), options.capacity_bytes);
    EXPECT_EQ(session.get(label_of(149)), value_of(149, 0, 3000));
}

TEST_P(DiskStore, compaction_gives_back_the_room_of_removed_records) {
    Session session(options);
    for (uint64_t i = 0; i < 100; ++i) session.put(label_of(i), value_of(i, 0, 3000));
    for (uint64_t i = 0; i < 100; ++i) {
        if (i % 10 != 0) session.ask(QUIRE_STORE_REMOVE, label_of(i));
    }
    uint64_t before = session.stats().used_bytes;
    quire_store_answer answer = session.ask(QUIRE_STORE_COMPACT);
    EXPECT_EQ(answer.outcome, uint32_t{QUIRE_STORE_DONE});
    EXPECT_EQ(answer.size_bytes, before - session.stats().used_bytes);
    EXPECT_LT(session.stats().used_bytes, 80 * kKiB);
    for (uint64_t i = 0; i < 100; i += 10) {
        EXPECT_EQ(session.get(label_of(i)), value_of(i, 0, 3000)) << i;
    }
    EXPECT_EQ(session.ask(QUIRE_STORE_COMPACT).size_bytes, 0u);
}

TEST_P(DiskStore, compaction_keeps_removals_of_older_records) {
    {
        Session session(options);
        // The first segment stays as it is; the second one holds only removals of its records.
        for (uint64_t i = 0; i < 14; ++i) session.put(label_of(i), value_of(i, 0, 3000));
    }
    {
        Session session(options);
        session.put(label_of(100), value_of(100, 0, 3000));
        session.put(label_of(101), value_of(101, 0, 9000));
        session.ask(QUIRE_STORE_REMOVE, label_of(101));
        session.ask(QUIRE_STORE_REMOVE, label_of(3));
        session.ask(QUIRE_STORE_COMPACT);
        session.ask(QUIRE_STORE_COMPACT);
    }
    Session session(options);
    EXPECT_FALSE(session.has(label_of(3)));
    EXPECT_FALSE(session.has(label_of(101)));
    EXPECT_TRUE(session.has(label_of(4)));
    EXPECT_TRUE(session.has(label_of(100)));
}

TEST_P(DiskStore, records_that_are_read_outlive_others) {
    options.capacity_bytes = 320 * kKiB;
    Session session(options);
    for (uint64_t i = 0; i < 200; ++i) {
        session.put(label_of(i), value_of(i, 0, 3000));
        if (i == 0) continue;
        ASSERT_EQ(session.get(label_of(0)), value_of(0, 0, 3000)) << i;
        ASSERT_EQ(session.get(label_of(1)), value_of(1, 0, 3000)) << i;
    }
    EXPECT_FALSE(session.has(label_of(2)));
    EXPECT_GT(session.stats().evicted, 100u);
    // A copy keeps the sequence of its first record.
    for (const quire_store_record &record : session.list()) {
        if (are_equal(record.label, label_of(0))) {
            EXPECT_EQ(record.sequence, 1u);
        }
    }
}

TEST_P(DiskStore, a_directory_has_one_owner) {
    quire_error error{};
    error.struct_size = sizeof error;
    {
        Session session(options);
        EXPECT_EQ(Session::open(options, &error), nullptr);
        EXPECT_EQ(error.status, QUIRE_E_BUSY);
        EXPECT_NE(std::string(error.message).find("pid " + std::to_string(getpid())),
                  std::string::npos)
            << error.message;
        Options reader = options;
        reader.is_read_only = reader.must_exist = true;
        EXPECT_EQ(Session::open(reader, &error), nullptr);
        EXPECT_EQ(error.status, QUIRE_E_BUSY);
    }
    EXPECT_NE(Session::open(options, &error), nullptr);
}

TEST_P(DiskStore, readers_share_a_directory_and_change_nothing) {
    {
        Session session(options);
        session.put(label_of(1), value_of(1, 0, 5000));
    }
    uint64_t room = room_of(folder.path());
    options.is_read_only = options.must_exist = true;
    Session first(options);
    Session second(options);
    EXPECT_EQ(first.get(label_of(1)), value_of(1, 0, 5000));
    EXPECT_EQ(second.get(label_of(1)), value_of(1, 0, 5000));
    EXPECT_EQ(second.ask(QUIRE_STORE_FLUSH).outcome, uint32_t{QUIRE_STORE_DONE});
    quire_error error{};
    error.struct_size = sizeof error;
    EXPECT_EQ(Session::open(small_options(folder.path()), &error), nullptr);
    EXPECT_EQ(error.status, QUIRE_E_BUSY);
    EXPECT_EQ(room_of(folder.path()), room);
}

TEST_P(DiskStore, opening_what_is_not_there_is_refused) {
    options.must_exist = true;
    quire_error error{};
    error.struct_size = sizeof error;
    EXPECT_EQ(Session::open(options, &error), nullptr);
    EXPECT_EQ(error.status, QUIRE_E_ARG);
    options.is_read_only = true;
    EXPECT_EQ(Session::open(options, &error), nullptr);
    EXPECT_EQ(error.status, QUIRE_E_ARG);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_P(DiskStore, segments_of_another_store_are_left_alone) {
    Folder other;
    {
        Options theirs = options;
        theirs.directory = other.path();
        Session session(theirs);
        session.put(label_of(1), value_of(1, 0, 5000));
        Session ours(options);
        ours.put(label_of(2), value_of(2, 0, 5000));
    }
    std::filesystem::path stranger = folder.path() + "/" + segment_name(7);
    std::filesystem::copy_file(other.path() + "/" + segment_name(1), stranger);
    Session session(options);
    EXPECT_FALSE(session.has(label_of(1)));
    EXPECT_EQ(session.get(label_of(2)), value_of(2, 0, 5000));
    EXPECT_EQ(session.stats().skipped_bytes, std::filesystem::file_size(stranger));
    session.put(label_of(3), value_of(3, 0, 5000));
    EXPECT_TRUE(std::filesystem::exists(folder.path() + "/" + segment_name(8)));
}

TEST_P(DiskStore, another_format_version_is_refused_and_nothing_changes) {
    {
        Session session(options);
        session.put(label_of(1), value_of(1, 0, 5000));
    }
    for (const std::string &name : {segment_name(1), std::string(kIdentityName)}) {
        std::string path = folder.path() + "/" + name;
        std::string before = read_file(path);
        std::string changed = before;
        auto *head = reinterpret_cast<uint8_t *>(changed.data());
        write_number<uint32_t>(head + 8, 2);
        quire_error error{};
        error.struct_size = sizeof error;
        {
            // With a checksum that does not fit, that is damage: records speak for themselves.
            std::ofstream(path, std::ios::binary) << changed;
            Session session(options);
            EXPECT_EQ(session.get(label_of(1)), value_of(1, 0, 5000)) << name;
        }
        write_number<uint64_t>(head + 16, XXH3_64bits(head, 16));
        std::ofstream(path, std::ios::binary) << changed;
        EXPECT_EQ(Session::open(options, &error), nullptr) << name;
        EXPECT_EQ(error.status, QUIRE_E_INCOMPATIBLE);
        EXPECT_NE(std::string(error.message).find("version 2"), std::string::npos);
        EXPECT_EQ(read_file(path), changed);
        std::ofstream(path, std::ios::binary) << before;
    }
}

}  // namespace

}  // namespace quire::disk::tests
