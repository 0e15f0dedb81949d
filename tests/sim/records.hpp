// SPDX-License-Identifier: Apache-2.0
//
// records: reads the lines of quire_cache_dump (docs/dump.md).
//
// Threads: none; functions.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace sim {

// The number in a record's field; -1: null, or there is no such field.
inline int64_t number_in(std::string_view record, std::string_view field) {
    const std::string name = "\"" + std::string(field) + "\":";
    const size_t at = record.find(name);
    if (at == record.npos || record[at + name.size()] == 'n') return -1;
    return std::strtoll(record.data() + at + name.size(), nullptr, 10);
}

// A field that needs all 64 bits; 0: there is no such field.
inline uint64_t bits_in(std::string_view record, std::string_view field) {
    const std::string name = "\"" + std::string(field) + "\":\"0x";
    const size_t at = record.find(name);
    if (at == record.npos) return 0;
    return std::strtoull(record.data() + at + name.size(), nullptr, 16);
}

inline std::vector<int64_t> blocks_in(std::string_view record) {
    std::vector<int64_t> ids;
    const std::string_view name = "\"blocks\":[";
    size_t at = record.find(name);
    if (at == record.npos) return ids;
    for (at += name.size(); record[at] != ']'; at += record[at] == ',') {
        char *end = nullptr;
        ids.push_back(std::strtoll(record.data() + at, &end, 10));
        at = static_cast<size_t>(end - record.data());
    }
    return ids;
}

inline bool has(std::string_view record, std::string_view text) {
    return record.find(text) != record.npos;
}

// Calls visit(record) for each line.
template <class Visit>
void each_record(std::string_view dump, Visit visit) {
    while (!dump.empty()) {
        const std::string_view record = dump.substr(0, dump.find('\n'));
        dump.remove_prefix(record.size() + 1);
        visit(record);
    }
}

}  // namespace sim
