// SPDX-License-Identifier: Apache-2.0

#include "disk/request.hpp"

#include <xxhash.h>

#include <cstring>

namespace quire::disk {

size_t KeyHolders::bucket_of(const uint8_t key[32]) { return XXH3_64bits(key, 32) % kBuckets; }

Request *KeyHolders::of(const uint8_t key[32]) const {
    Request *request = buckets_[bucket_of(key)];
    while (request != nullptr && std::memcmp(request->label().key, key, 32) != 0) {
        request = request->next_of_key;
    }
    return request;
}

void KeyHolders::add(Request *request) {
    Request *&bucket = buckets_[bucket_of(request->label().key)];
    request->next_of_key = bucket;
    bucket = request;
}

void KeyHolders::remove(Request *request) {
    Request **at = &buckets_[bucket_of(request->label().key)];
    while (*at != request) at = &(*at)->next_of_key;
    *at = request->next_of_key;
}

}  // namespace quire::disk
