// SPDX-License-Identifier: Apache-2.0
//
// record: the on-disk format of the identity file, segments and records (docs/store-format.md).
//
// Why a record names its store, its segment and its offset: after damage, recovery looks for the
// next record at every multiple of 4,096 bytes, also inside values. A value that holds the image of
// a record is not mistaken for one, because it cannot know the 16 random bytes of the store.
//
// Threads: any; nothing here does I/O.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "disk/bytes.hpp"
#include "quire/plugin/store.h"

namespace quire::disk {

constexpr uint32_t kFormatVersion = 1;
constexpr uint64_t kSegmentHeaderBytes = kUnitBytes;
constexpr uint64_t kRecordHeaderBytes = 256;
constexpr uint64_t kIdentityBytes = 256;  // of the file; the owner's text follows
constexpr char kIdentityName[] = "quire-store";

using StoreId = std::array<uint8_t, 16>;

enum class RecordKind : uint32_t { value = 1, removal = 2 };

struct Record {
    RecordKind kind = RecordKind::value;
    uint64_t sequence = 0;        // grows with the position in the log
    uint64_t first_sequence = 0;  // of the record that this is a copy of, or its own
    uint64_t segment = 0;
    uint64_t offset = 0;  // in the segment's file
    uint64_t value_bytes = 0;
    uint64_t value_checksum = 0;
    StoreId store{};
    quire_store_label label{};

    uint64_t total_bytes() const { return round_up(kRecordHeaderBytes + value_bytes); }
};

bool are_equal(const quire_store_label &a, const quire_store_label &b);

// The seed of a value's checksum, which ties the value to its size, store and label.
uint64_t value_seed(const Record &record);
uint64_t value_checksum(const Record &record, const void *value);

void write_record(const Record &record, uint8_t out[kRecordHeaderBytes]);

enum class Reading {
    right,
    absent,      // it does not begin as one
    damaged,     // it begins as one, and a checksum or a field is wrong
    unreadable,  // right, of a version that is not known here
};

Reading read_record(const uint8_t in[kRecordHeaderBytes], Record *out);

struct SegmentHeader {
    uint64_t number = 0;
    uint64_t limit_bytes = 0;  // the file never grows past it
    StoreId store{};
};

void write_segment_header(const SegmentHeader &header, uint8_t out[kSegmentHeaderBytes]);
// `version` receives the one that is written there, if the result is `unreadable`.
Reading read_segment_header(const uint8_t in[kSegmentHeaderBytes], SegmentHeader *out,
                            uint32_t *version);

void write_identity(const StoreId &store, uint8_t out[kIdentityBytes]);
Reading read_identity(const uint8_t in[kIdentityBytes], StoreId *out, uint32_t *version);

// 16 lower-case hexadecimal digits.
std::string segment_name(uint64_t number);
// False: the name is not one of a segment.
bool read_segment_name(std::string_view name, uint64_t *number);

}  // namespace quire::disk
