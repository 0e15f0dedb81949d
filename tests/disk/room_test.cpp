// SPDX-License-Identifier: Apache-2.0
//
// A file system that is full.

#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>

#include "scene.hpp"

namespace quire::disk::tests {

namespace {

// A file system of 1 MiB in memory, which goes with the object.
class TinyFileSystem {
 public:
    TinyFileSystem() {
        error_ = ::mount("quire", folder_.path().c_str(), "tmpfs", 0, "size=1m") == 0 ? 0 : errno;
    }
    TinyFileSystem(const TinyFileSystem &) = delete;
    TinyFileSystem &operator=(const TinyFileSystem &) = delete;
    ~TinyFileSystem() {
        if (error_ == 0) ::umount(folder_.path().c_str());
    }
    int error() const { return error_; }
    const std::string &path() const { return folder_.path(); }

 private:
    Folder folder_;
    int error_ = 0;
};

TEST(DiskRooms, many_opens_leave_a_bounded_number_of_files) {
    auto memory = std::make_shared<Memory>();
    Options options = small_options();
    options.capacity_bytes = 4096 * kKiB;
    constexpr uint64_t kMostFiles = 4096 / 64 + 128 + 3;
    constexpr uint64_t kOpens = kMostFiles + 50;  // each reads all files
    for (uint64_t i = 0; i < kOpens; ++i) {
        Session session(options, memory);
        session.put(label_of(i), value_of(i, 0, 100));
        ASSERT_LE(memory->files().size(), kMostFiles) << i;
    }
    Session session(options, memory);
    EXPECT_EQ(session.stats().evicted, 0u);
    for (uint64_t i = 0; i < kOpens; ++i) {
        EXPECT_EQ(session.get(label_of(i)), value_of(i, 0, 100)) << i;
    }
}

class DiskRoom : public testing::TestWithParam<IoChoice> {};

INSTANTIATE_TEST_SUITE_P(Io, DiskRoom, testing::Values(IoChoice::automatic, IoChoice::threads));

TEST_P(DiskRoom, a_full_file_system_refuses_puts_and_keeps_the_records) {
    TinyFileSystem tiny;
    if (tiny.error() != 0) GTEST_SKIP() << "cannot mount: " << std::strerror(tiny.error());
    Options options = small_options(tiny.path());
    options.capacity_bytes = 4096 * kKiB;  // more than there is
    options.segment_bytes = 128 * kKiB;
    options.io = GetParam();
    uint64_t stored = 0, full = 0;
    {
        Session session(options);
        for (uint64_t i = 0; i < 400; ++i) {
            quire_store_answer answer = session.put(label_of(i), value_of(i, 0, 5000));
            if (answer.outcome == QUIRE_STORE_DONE) {
                ASSERT_EQ(stored, i) << "room came from nowhere";
                ++stored;
            } else {
                ASSERT_EQ(answer.outcome, uint32_t{QUIRE_STORE_FULL});
                EXPECT_EQ(answer.native_code, ENOSPC);
                ++full;
            }
        }
        EXPECT_GT(stored, 60u);
        EXPECT_GT(full, 100u);
        for (uint64_t i = 0; i < stored; ++i) {
            ASSERT_EQ(session.get(label_of(i)), value_of(i, 0, 5000)) << i;
        }
        EXPECT_EQ(session.stats().puts_refused, full);
        EXPECT_EQ(session.stats().evicted, 0u);
        // A removal needs room too, and says if there is none.
        uint32_t outcome = session.ask(QUIRE_STORE_REMOVE, label_of(0)).outcome;
        EXPECT_TRUE(outcome == QUIRE_STORE_DONE || outcome == QUIRE_STORE_FAILED);
    }
    Session session(options);
    for (uint64_t i = 1; i < stored; ++i) {
        ASSERT_EQ(session.get(label_of(i)), value_of(i, 0, 5000)) << i;
    }
}

}  // namespace

}  // namespace quire::disk::tests
