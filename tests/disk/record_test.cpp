// SPDX-License-Identifier: Apache-2.0
//
// The bytes of the format, as docs/store-format.md defines them.

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>

#include "scene.hpp"

namespace quire::disk::tests {

namespace {

std::string hex(const uint8_t *bytes, uint64_t size) {
    std::string text;
    for (uint64_t i = 0; i < size; ++i) {
        char two[3];
        std::snprintf(two, sizeof two, "%02x", bytes[i]);
        text += two;
    }
    return text;
}

Record example() {
    Record record;
    record.sequence = 0x0102030405060708;
    record.first_sequence = 0x1112131415161718;
    record.segment = 0x2122232425262728;
    record.offset = 0x3000;
    record.value_bytes = 5;
    for (uint8_t i = 0; i < 16; ++i) record.store[i] = static_cast<uint8_t>(0x40 + i);
    std::memset(record.label.key, 0xA1, 32);
    std::memset(record.label.fingerprint, 0xB2, 32);
    std::memset(record.label.name_space, 0xC3, 32);
    record.value_checksum = value_checksum(record, "value");
    return record;
}

TEST(DiskFormat, a_record_has_these_bytes) {
    uint8_t bytes[kRecordHeaderBytes];
    write_record(example(), bytes);
    // Magic, version 1, kind 1, then two checksums.
    EXPECT_EQ(hex(bytes, 16), "51554952455245430100000001000000");
    EXPECT_EQ(hex(bytes + 16, 8), "e08d78b82abad91e");
    EXPECT_EQ(hex(bytes + 24, 8), "8d6809f0a0786f45");
    EXPECT_EQ(hex(bytes + 32, 48),
              "0807060504030201"    // sequence
              "1817161514131211"    // first sequence
              "2827262524232221"    // segment
              "0030000000000000"    // offset
              "0010000000000000"    // all bytes
              "0500000000000000");  // bytes of the value
    EXPECT_EQ(hex(bytes + 80, 16), "404142434445464748494a4b4c4d4e4f");
    for (int i = 0; i < 32; ++i) {
        EXPECT_EQ(bytes[96 + i], 0xA1);
        EXPECT_EQ(bytes[128 + i], 0xB2);
        EXPECT_EQ(bytes[160 + i], 0xC3);
        EXPECT_EQ(bytes[192 + i] | bytes[224 + i], 0);
    }
}

TEST(DiskFormat, a_record_reads_as_it_was_written) {
    uint8_t bytes[kRecordHeaderBytes];
    Record record = example();
    write_record(record, bytes);
    Record read;
    ASSERT_EQ(read_record(bytes, &read), Reading::right);
    EXPECT_EQ(std::memcmp(&read.label, &record.label, sizeof read.label), 0);
    EXPECT_EQ(read.value_checksum, record.value_checksum);
    EXPECT_EQ(read.first_sequence, record.first_sequence);
    for (uint64_t bit = 0; bit < 8 * kRecordHeaderBytes; ++bit) {
        bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        EXPECT_NE(read_record(bytes, &read), Reading::right) << bit;
        bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    }
}

TEST(DiskFormat, a_value_is_tied_to_its_size_store_and_label) {
    Record record = example();
    const uint8_t value[6] = "value";
    for (int field = 0; field < 5; ++field) {
        Record other = record;
        if (field == 0) other.label.key[31] ^= 1;
        if (field == 1) other.label.fingerprint[0] ^= 1;
        if (field == 2) other.label.name_space[0] ^= 1;
        if (field == 3) other.store[0] ^= 1;
        if (field == 4) other.value_bytes = 6;
        EXPECT_NE(value_checksum(other, value), record.value_checksum) << field;
    }
}

TEST(DiskFormat, a_segment_header_has_these_bytes) {
    uint8_t bytes[kSegmentHeaderBytes];
    write_segment_header({0x0102, 0x100000, example().store}, bytes);
    EXPECT_EQ(hex(bytes, 16), "51554952455345470100000004030201");
    EXPECT_EQ(hex(bytes + 16, 16), "1051a8bdc364f2c71395844e9f892931");
    EXPECT_EQ(hex(bytes + 32, 32),
              "02010000000000000000100000000000404142434445464748494a4b4c4d4e4f");
    for (uint64_t i = 64; i < kSegmentHeaderBytes; ++i) ASSERT_EQ(bytes[i], 0);
    for (uint64_t i = 0; i < kSegmentHeaderBytes; ++i) {
        SegmentHeader read;
        uint32_t version = 0;
        bytes[i] ^= 0x10;
        EXPECT_NE(read_segment_header(bytes, &read, &version), Reading::right) << i;
        EXPECT_NE(read_segment_header(bytes, &read, &version), Reading::unreadable) << i;
        bytes[i] ^= 0x10;
    }
}

TEST(DiskFormat, the_identity_has_these_bytes) {
    uint8_t bytes[kIdentityBytes];
    write_identity(example().store, bytes);
    EXPECT_EQ(hex(bytes, 16), "515549524553544f0100000004030201");
    EXPECT_EQ(hex(bytes + 16, 32),
              "13e3697079bbcbf61a53cafb70a73162404142434445464748494a4b4c4d4e4f");
    for (uint64_t i = 48; i < kIdentityBytes; ++i) ASSERT_EQ(bytes[i], 0);
}

TEST(DiskFormat, segments_are_named_by_their_number) {
    uint64_t number = 0;
    EXPECT_EQ(segment_name(0x1f), "000000000000001f");
    EXPECT_TRUE(read_segment_name("fedcba9876543210", &number));
    EXPECT_EQ(number, 0xfedcba9876543210);
    for (const char *name :
         {"", "1f", "000000000000001F", "000000000000001g", "0000000000000001f", "quire-store"}) {
        EXPECT_FALSE(read_segment_name(name, &number)) << name;
    }
}

}  // namespace

}  // namespace quire::disk::tests
