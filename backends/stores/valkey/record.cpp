// SPDX-License-Identifier: Apache-2.0

#include "valkey/record.hpp"

#include <xxhash.h>

#include <bit>
#include <cstring>

namespace quire::valkey {

namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

constexpr char kMagic[8] = {'Q', 'U', 'I', 'R', 'E', 'V', 'A', 'L'};
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderSumAt = 16;
constexpr size_t kValueSumAt = 24;
constexpr size_t kSizeAt = 32;
constexpr size_t kLabelAt = 40;

uint64_t seed_of(const char *header) {
    return XXH3_64bits(header + kSizeAt, kHeaderBytes - kSizeAt);
}

uint64_t header_sum(const char *header) {
    char copy[kHeaderBytes];
    std::memcpy(copy, header, kHeaderBytes);
    std::memset(copy + kHeaderSumAt, 0, sizeof(uint64_t));
    return XXH3_64bits(copy, kHeaderBytes);
}

uint64_t number_at(const char *bytes) {
    uint64_t number = 0;
    std::memcpy(&number, bytes, sizeof number);
    return number;
}

int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

bool are_equal(const quire_store_label &a, const quire_store_label &b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

void append_record(const quire_store_label &label, const std::vector<quire_store_piece> &pieces,
                   uint64_t size_bytes, std::string *out) {
    const size_t begin = out->size();
    out->append(kHeaderBytes, '\0');
    for (const quire_store_piece &piece : pieces) {
        out->append(static_cast<const char *>(piece.address), piece.size_bytes);
    }
    char *header = out->data() + begin;
    std::memcpy(header, kMagic, sizeof kMagic);
    std::memcpy(header + sizeof kMagic, &kVersion, sizeof kVersion);
    std::memcpy(header + kSizeAt, &size_bytes, sizeof size_bytes);
    std::memcpy(header + kLabelAt, &label, sizeof label);
    const uint64_t value_sum =
        XXH3_64bits_withSeed(header + kHeaderBytes, size_bytes, seed_of(header));
    std::memcpy(header + kValueSumAt, &value_sum, sizeof value_sum);
    const uint64_t sum = header_sum(header);
    std::memcpy(header + kHeaderSumAt, &sum, sizeof sum);
}

bool read_header(std::string_view bytes, Header *out) {
    if (bytes.size() < kHeaderBytes) return false;
    const char *header = bytes.data();
    uint32_t version = 0;
    std::memcpy(&version, header + sizeof kMagic, sizeof version);
    if (std::memcmp(header, kMagic, sizeof kMagic) != 0 || version != kVersion) return false;
    if (number_at(header + kHeaderSumAt) != header_sum(header)) return false;
    out->size_bytes = number_at(header + kSizeAt);
    std::memcpy(&out->label, header + kLabelAt, sizeof out->label);
    return true;
}

bool is_right(std::string_view record) {
    Header header;
    if (!read_header(record, &header)) return false;
    std::string_view value = record.substr(kHeaderBytes);
    return value.size() == header.size_bytes &&
           XXH3_64bits_withSeed(value.data(), value.size(), seed_of(record.data())) ==
               number_at(record.data() + kValueSumAt);
}

std::string name_of_key(const std::string &prefix, const uint8_t key[32]) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string name = prefix;
    for (int i = 0; i < 32; ++i) {
        name += kDigits[key[i] >> 4];
        name += kDigits[key[i] & 15];
    }
    return name;
}

bool read_name(const std::string &prefix, std::string_view name, uint8_t key[32]) {
    if (name.size() != prefix.size() + 64 || !name.starts_with(prefix)) return false;
    name.remove_prefix(prefix.size());
    for (size_t i = 0; i < 32; ++i) {
        const int high = digit_of(name[2 * i]), low = digit_of(name[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        key[i] = static_cast<uint8_t>(high << 4 | low);
    }
    return true;
}

}  // namespace quire::valkey
