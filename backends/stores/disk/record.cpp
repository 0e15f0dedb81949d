// SPDX-License-Identifier: Apache-2.0

#include "disk/record.hpp"

#include <xxhash.h>

#include <cstdio>
#include <cstring>

namespace quire::disk {

namespace {

constexpr char kRecordMagic[] = "QUIREREC";
constexpr char kSegmentMagic[] = "QUIRESEG";
constexpr char kIdentityMagic[] = "QUIRESTO";
constexpr uint64_t kMagicBytes = 8;
constexpr uint32_t kByteOrder = 0x01020304;

// Where the fields of a record are.
constexpr uint64_t kVersionAt = 8;
constexpr uint64_t kKindAt = 12;
constexpr uint64_t kChecksumAt = 16;
constexpr uint64_t kValueChecksumAt = 24;
constexpr uint64_t kSequenceAt = 32;
constexpr uint64_t kFirstSequenceAt = 40;
constexpr uint64_t kSegmentAt = 48;
constexpr uint64_t kOffsetAt = 56;
constexpr uint64_t kTotalBytesAt = 64;
constexpr uint64_t kValueBytesAt = 72;
constexpr uint64_t kStoreAt = 80;
constexpr uint64_t kLabelAt = 96;
constexpr uint64_t kRecordEnd = 192;

// Where the fields of a segment's header and of the identity are. The first 24 bytes are the same
// in every version, so that a version that is not known can be told from damage.
constexpr uint64_t kByteOrderAt = 12;
constexpr uint64_t kHeadChecksumAt = 16;
constexpr uint64_t kWholeChecksumAt = 24;
constexpr uint64_t kSegmentNumberAt = 32;
constexpr uint64_t kSegmentLimitAt = 40;
constexpr uint64_t kSegmentStoreAt = 48;
constexpr uint64_t kIdentityStoreAt = 32;

static_assert(sizeof(quire_store_label) == kRecordEnd - kLabelAt);

// XXH3 of `size` bytes, as if the 8 bytes at `field_at` were 0.
uint64_t checksum_without(const uint8_t *bytes, uint64_t size, uint64_t field_at) {
    uint8_t copy[kUnitBytes];
    std::memcpy(copy, bytes, size);
    std::memset(copy + field_at, 0, sizeof(uint64_t));
    return XXH3_64bits(copy, size);
}

void write_head(const char *magic, uint64_t size, uint8_t *out) {
    std::memcpy(out, magic, kMagicBytes);
    write_number<uint32_t>(out + kVersionAt, kFormatVersion);
    write_number<uint32_t>(out + kByteOrderAt, kByteOrder);
    write_number<uint64_t>(out + kHeadChecksumAt, XXH3_64bits(out, kHeadChecksumAt));
    write_number<uint64_t>(out + kWholeChecksumAt, checksum_without(out, size, kWholeChecksumAt));
}

Reading read_head(const char *magic, uint64_t size, const uint8_t *in, uint32_t *version) {
    if (std::memcmp(in, magic, kMagicBytes) != 0) return Reading::absent;
    if (read_number<uint64_t>(in + kHeadChecksumAt) != XXH3_64bits(in, kHeadChecksumAt)) {
        return Reading::damaged;
    }
    *version = read_number<uint32_t>(in + kVersionAt);
    if (*version != kFormatVersion || read_number<uint32_t>(in + kByteOrderAt) != kByteOrder) {
        return Reading::unreadable;
    }
    bool is_right = read_number<uint64_t>(in + kWholeChecksumAt) ==
                    checksum_without(in, size, kWholeChecksumAt);
    return is_right ? Reading::right : Reading::damaged;
}

void write_identity_of_value(const Record &record, uint8_t *out) {
    write_number<uint64_t>(out + kValueBytesAt, record.value_bytes);
    std::memcpy(out + kStoreAt, record.store.data(), record.store.size());
    std::memcpy(out + kLabelAt, &record.label, sizeof record.label);
}

bool has_right_fields(const Record &record, const uint8_t *in) {
    // A size near 2^64 would overflow when rounded.
    if (record.value_bytes > UINT64_MAX / 2) return false;
    if (read_number<uint64_t>(in + kTotalBytesAt) != record.total_bytes()) return false;
    if (record.kind == RecordKind::removal) return record.value_bytes == 0;
    return record.kind == RecordKind::value && record.value_bytes != 0;
}

}  // namespace

bool are_equal(const quire_store_label &a, const quire_store_label &b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

uint64_t value_seed(const Record &record) {
    uint8_t header[kRecordHeaderBytes];
    write_identity_of_value(record, header);
    return XXH3_64bits(header + kValueBytesAt, kRecordEnd - kValueBytesAt);
}

uint64_t value_checksum(const Record &record, const void *value) {
    return XXH3_64bits_withSeed(value, record.value_bytes, value_seed(record));
}

void write_record(const Record &record, uint8_t out[kRecordHeaderBytes]) {
    std::memset(out, 0, kRecordHeaderBytes);
    std::memcpy(out, kRecordMagic, kMagicBytes);
    write_number<uint32_t>(out + kVersionAt, kFormatVersion);
    write_number<uint32_t>(out + kKindAt, static_cast<uint32_t>(record.kind));
    write_number<uint64_t>(out + kValueChecksumAt, record.value_checksum);
    write_number<uint64_t>(out + kSequenceAt, record.sequence);
    write_number<uint64_t>(out + kFirstSequenceAt, record.first_sequence);
    write_number<uint64_t>(out + kSegmentAt, record.segment);
    write_number<uint64_t>(out + kOffsetAt, record.offset);
    write_number<uint64_t>(out + kTotalBytesAt, record.total_bytes());
    write_identity_of_value(record, out);
    write_number<uint64_t>(out + kChecksumAt, XXH3_64bits(out, kRecordHeaderBytes));
}

Reading read_record(const uint8_t in[kRecordHeaderBytes], Record *out) {
    if (std::memcmp(in, kRecordMagic, kMagicBytes) != 0) return Reading::absent;
    uint64_t wanted = read_number<uint64_t>(in + kChecksumAt);
    if (wanted != checksum_without(in, kRecordHeaderBytes, kChecksumAt)) return Reading::damaged;
    if (read_number<uint32_t>(in + kVersionAt) != kFormatVersion) return Reading::unreadable;
    out->kind = static_cast<RecordKind>(read_number<uint32_t>(in + kKindAt));
    out->value_checksum = read_number<uint64_t>(in + kValueChecksumAt);
    out->sequence = read_number<uint64_t>(in + kSequenceAt);
    out->first_sequence = read_number<uint64_t>(in + kFirstSequenceAt);
    out->segment = read_number<uint64_t>(in + kSegmentAt);
    out->offset = read_number<uint64_t>(in + kOffsetAt);
    out->value_bytes = read_number<uint64_t>(in + kValueBytesAt);
    std::memcpy(out->store.data(), in + kStoreAt, out->store.size());
    std::memcpy(&out->label, in + kLabelAt, sizeof out->label);
    return has_right_fields(*out, in) ? Reading::right : Reading::damaged;
}

void write_segment_header(const SegmentHeader &header, uint8_t out[kSegmentHeaderBytes]) {
    std::memset(out, 0, kSegmentHeaderBytes);
    write_number<uint64_t>(out + kSegmentNumberAt, header.number);
    write_number<uint64_t>(out + kSegmentLimitAt, header.limit_bytes);
    std::memcpy(out + kSegmentStoreAt, header.store.data(), header.store.size());
    write_head(kSegmentMagic, kSegmentHeaderBytes, out);
}

Reading read_segment_header(const uint8_t in[kSegmentHeaderBytes], SegmentHeader *out,
                            uint32_t *version) {
    Reading reading = read_head(kSegmentMagic, kSegmentHeaderBytes, in, version);
    if (reading != Reading::right) return reading;
    out->number = read_number<uint64_t>(in + kSegmentNumberAt);
    out->limit_bytes = read_number<uint64_t>(in + kSegmentLimitAt);
    std::memcpy(out->store.data(), in + kSegmentStoreAt, out->store.size());
    return Reading::right;
}

void write_identity(const StoreId &store, uint8_t out[kIdentityBytes]) {
    std::memset(out, 0, kIdentityBytes);
    std::memcpy(out + kIdentityStoreAt, store.data(), store.size());
    write_head(kIdentityMagic, kIdentityBytes, out);
}

Reading read_identity(const uint8_t in[kIdentityBytes], StoreId *out, uint32_t *version) {
    Reading reading = read_head(kIdentityMagic, kIdentityBytes, in, version);
    if (reading == Reading::right) std::memcpy(out->data(), in + kIdentityStoreAt, out->size());
    return reading;
}

std::string segment_name(uint64_t number) {
    char name[17];
    std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(number));
    return name;
}

bool read_segment_name(std::string_view name, uint64_t *number) {
    if (name.size() != 16) return false;
    *number = 0;
    for (char c : name) {
        bool is_letter = c >= 'a' && c <= 'f';
        if (!is_letter && (c < '0' || c > '9')) return false;
        *number = *number << 4 | static_cast<uint64_t>(is_letter ? c - 'a' + 10 : c - '0');
    }
    return true;
}

}  // namespace quire::disk
