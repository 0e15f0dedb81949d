// SPDX-License-Identifier: Apache-2.0
//
// record: what lies under a key of the cluster: a header that tells the label, and the value.
//
// All numbers are little-endian. XXH3 detects accidents; it is not a signature.
//
//     0  8 bytes   QUIREVAL
//     8  u32       version: 1
//    12  u32       0
//    16  u64       XXH3 of the whole header with this field 0
//    24  u64       XXH3 of the value, whose seed is the XXH3 of bytes 32 to 135
//    32  u64       bytes of the value
//    40  32 bytes  key
//    72  32 bytes  fingerprint
//   104  32 bytes  name space
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/plugin/store.h"

namespace quire::valkey {

constexpr uint64_t kHeaderBytes = 136;

struct Header {
    quire_store_label label;
    uint64_t size_bytes;
};

bool are_equal(const quire_store_label &a, const quire_store_label &b);

// Appends the header and the pieces.
void append_record(const quire_store_label &label, const std::vector<quire_store_piece> &pieces,
                   uint64_t size_bytes, std::string *out);
// False: no right header begins there.
bool read_header(std::string_view bytes, Header *out);
// True if the whole record is right: its header, its length, and its value's checksum.
bool is_right(std::string_view record);

// The key's name in the cluster: the prefix, and 64 hexadecimal digits.
std::string name_of_key(const std::string &prefix, const uint8_t key[32]);
// False: the name is not made so.
bool read_name(const std::string &prefix, std::string_view name, uint8_t key[32]);

}  // namespace quire::valkey
