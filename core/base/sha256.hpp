// SPDX-License-Identifier: Apache-2.0
//
// sha256: SHA-256 (FIPS 180-4), for names that other processes and languages compute too.
//
// The algorithm is libmd's, linked in.
//
// Threads: none; a local of its user.
#pragma once

#include <sys/types.h>

#include <sha2.h>

#include <cstdint>

namespace quire {

struct Digest {
    uint8_t bytes[32];

    friend bool operator==(const Digest &, const Digest &) = default;
};

class Sha256 {
 public:
    Sha256();
    void add(const void *bytes, uint64_t size_bytes);
    // As 4 bytes, little-endian.
    void add(uint32_t number);
    Digest finish();

 private:
    SHA2_CTX state_;
};

}  // namespace quire
