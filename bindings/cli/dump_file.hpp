// SPDX-License-Identifier: Apache-2.0
//
// dump_file: reads a dump; refuses a file of another kind or version, and a damaged dump.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace quire::cli {

using Record = nlohmann::ordered_json;

struct DumpFile {
    uint64_t version = 0;
    bool tokens = false;
    std::vector<Record> records;  // all but the first and the last, in their order

    std::vector<const Record *> of(const std::string &kind) const;
};

DumpFile read_dump(const std::string &path);

// The name that identifies a record among those of its kind: "block group 0 device id 3".
std::string identity(const Record &record);

}  // namespace quire::cli
