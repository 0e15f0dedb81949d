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

namespace sim {

// The number in a record's field; -1: null, or there is no such field.
inline int64_t number_in(std::string_view record, std::string_view field) {
    const std::string name = "\"" + std::string(field) + "\":";
    const size_t at = record.find(name);
    if (at == record.npos || record[at + name.size()] == 'n') return -1;
    return std::strtoll(record.data() + at + name.size(), nullptr, 10);
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
