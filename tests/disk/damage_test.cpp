// SPDX-License-Identifier: Apache-2.0
//
// Damaged files: a damaged record is a miss, and no other record is affected.

#include <gtest/gtest.h>

#include <cerrno>

#include "effort.hpp"
#include "scene.hpp"

namespace quire::disk::tests {

namespace {

constexpr uint64_t kValueBytes = 700;

// A store with records 0, 1 and 2 in its first segment, at 4096, 8192 and 12288.
std::shared_ptr<Memory> three_records() {
    auto memory = std::make_shared<Memory>();
    Session session(small_options(), memory);
    for (uint64_t i = 0; i < 3; ++i) session.put(label_of(i), value_of(i, 0, kValueBytes));
    return memory;
}

std::shared_ptr<Memory> copy_of(const std::map<std::string, Bytes> &files) {
    auto memory = std::make_shared<Memory>();
    for (const auto &[name, bytes] : files) memory->set_file(name, bytes);
    return memory;
}

TEST(DiskDamage, each_flipped_byte_of_a_record_is_a_miss_of_that_record_alone) {
    auto files = three_records()->files();
    uint64_t missed = 0, damaged = 0;
    for (uint64_t at = 0; at < kRecordHeaderBytes + kValueBytes; ++at) {
        auto changed = files;
        changed[segment_name(1)][8192 + at] ^= static_cast<uint8_t>(1 + at % 255);
        Session session(small_options(), copy_of(changed));
        quire_store_answer answer{};
        EXPECT_FALSE(session.get(label_of(1), kValueBytes, &answer)) << at;
        (answer.outcome == QUIRE_STORE_MISS ? missed : damaged) += 1;
        if (at >= kRecordHeaderBytes) {
            EXPECT_EQ(answer.outcome, uint32_t{QUIRE_STORE_DAMAGED}) << at;
            EXPECT_EQ(session.stats().damaged, 1u);
            EXPECT_TRUE(session.gone.contains(key_of(label_of(1))));
        } else {
            EXPECT_EQ(answer.outcome, uint32_t{QUIRE_STORE_MISS}) << at;
            EXPECT_EQ(session.stats().damaged, at < 8 ? 0u : 1u) << at;
            EXPECT_GE(session.stats().skipped_bytes, 4096u);
        }
        EXPECT_FALSE(session.has(label_of(1)));
        EXPECT_EQ(session.get(label_of(0)), value_of(0, 0, kValueBytes)) << at;
        EXPECT_EQ(session.get(label_of(2)), value_of(2, 0, kValueBytes)) << at;
        EXPECT_EQ(session.put(label_of(1), value_of(1, 0, kValueBytes)).outcome,
                  uint32_t{QUIRE_STORE_DONE});
        EXPECT_EQ(session.get(label_of(1)), value_of(1, 0, kValueBytes));
    }
    EXPECT_EQ(missed, kRecordHeaderBytes);
    EXPECT_EQ(damaged, kValueBytes);
}

TEST(DiskDamage, each_truncation_keeps_the_records_before_it) {
    auto files = three_records()->files();
    const Bytes whole = files[segment_name(1)];
    ASSERT_EQ(whole.size(), 4u * 4096);
    for (uint64_t size = 0; size <= whole.size(); size += 512) {
        auto changed = files;
        changed[segment_name(1)].resize(size);
        Session session(small_options(), copy_of(changed));
        for (uint64_t i = 0; i < 3; ++i) {
            bool is_there = size >= (i + 2) * 4096;
            EXPECT_EQ(session.has(label_of(i)), is_there) << size;
            std::optional<Bytes> value = session.get(label_of(i));
            EXPECT_EQ(value.has_value(), is_there) << size;
            if (is_there) {
                EXPECT_EQ(value, value_of(i, 0, kValueBytes));
            }
        }
        session.put(label_of(9), value_of(9, 0, kValueBytes));
        EXPECT_EQ(session.get(label_of(9)), value_of(9, 0, kValueBytes));
    }
}

TEST(DiskDamage, each_flipped_byte_of_a_segment_header_costs_no_record) {
    auto files = three_records()->files();
    for (uint64_t at = 0; at < kSegmentHeaderBytes; at += at < 64 ? 1 : 101) {
        auto changed = files;
        changed[segment_name(1)][at] ^= 0x40;
        Session session(small_options(), copy_of(changed));
        for (uint64_t i = 0; i < 3; ++i) {
            EXPECT_EQ(session.get(label_of(i)), value_of(i, 0, kValueBytes)) << at;
        }
    }
}

TEST(DiskDamage, each_flipped_byte_of_the_identity_costs_no_record) {
    auto files = three_records()->files();
    for (uint64_t at = 0; at < kIdentityBytes; ++at) {
        auto changed = files;
        changed[kIdentityName][at] ^= 0x40;
        auto memory = copy_of(changed);
        Session session(small_options(), memory);
        for (uint64_t i = 0; i < 3; ++i) {
            EXPECT_EQ(session.get(label_of(i)), value_of(i, 0, kValueBytes)) << at;
        }
        EXPECT_TRUE(std::equal(files[kIdentityName].begin(),
                               files[kIdentityName].begin() + kIdentityBytes,
                               memory->files()[kIdentityName].begin()))
            << at;
    }
}

TEST(DiskDamage, a_value_that_is_an_image_of_a_segment_is_only_a_value) {
    Bytes image = three_records()->files()[segment_name(1)];
    auto memory = std::make_shared<Memory>();
    Bytes value = image;
    {
        Session session(small_options(), memory);
        // The image begins at the multiples of 4,096 bytes where records would be.
        value.insert(value.begin(), kUnitBytes - kRecordHeaderBytes, 0);
        session.put(label_of(50), value);
        session.put(label_of(51), value_of(51, 0, 100));
    }
    auto files = memory->files();
    files[segment_name(1)][4096 + 40] ^= 1;  // the header of record 50
    Session session(small_options(), copy_of(files));
    EXPECT_EQ(session.list().size(), 1u);
    EXPECT_EQ(session.get(label_of(51)), value_of(51, 0, 100));
}

TEST(DiskDamage, a_damaged_removal_brings_back_at_most_the_removed_value) {
    auto memory = three_records();
    {
        Session session(small_options(), memory);
        session.ask(QUIRE_STORE_REMOVE, label_of(1));
    }
    auto files = memory->files();
    files[segment_name(2)][4096 + 40] ^= 1;
    Session session(small_options(), copy_of(files));
    std::optional<Bytes> value = session.get(label_of(1));
    if (value.has_value()) {
        EXPECT_EQ(value, value_of(1, 0, kValueBytes));
    }
    // The next removal is written although the index might not have the key.
    session.ask(QUIRE_STORE_REMOVE, label_of(1));
    EXPECT_FALSE(session.has(label_of(1)));
}

TEST(DiskDamage, a_file_cut_while_it_is_open_is_damage) {
    auto memory = three_records();
    Session session(small_options(), memory);
    {
        std::lock_guard lock(memory->mutex);
        memory->find(segment_name(1))->bytes.resize(3 * 4096 + 100);
    }
    quire_store_answer answer{};
    EXPECT_FALSE(session.get(label_of(2), kValueBytes, &answer));
    EXPECT_EQ(answer.outcome, uint32_t{QUIRE_STORE_DAMAGED});
    EXPECT_EQ(session.get(label_of(1)), value_of(1, 0, kValueBytes));
}

}  // namespace

}  // namespace quire::disk::tests
