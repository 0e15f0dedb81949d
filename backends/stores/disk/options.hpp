// SPDX-License-Identifier: Apache-2.0
//
// options: the settings of a store as text, read and checked.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "disk/files.hpp"
#include "quire/plugin/store.h"

namespace quire::disk {

// When records become durable, beyond FLUSH, after which all are.
enum class Durability {
    none,     // the system writes them when it likes
    segment,  // when their segment is full, and at close
    record,   // before each answer
};

enum class IoChoice { automatic, uring, threads };

struct Options {
    std::string directory;
    uint64_t capacity_bytes = 0;
    uint64_t segment_bytes = 0;
    Durability durability = Durability::segment;
    IoChoice io = IoChoice::automatic;
    uint32_t thread_count = 4;
    Direct direct = Direct::automatic;
    bool is_read_only = false;
    bool must_exist = false;

    // A segment holds at least one record of this size.
    uint64_t max_record_bytes() const;
    uint64_t max_value_bytes() const;
};

extern const char kHelp[];

// QUIRE_E_ARG: an option is unknown, given twice or wrong; the message says which.
quire_status read_options(const quire_store_desc &desc, Options *out, quire_error *error);

}  // namespace quire::disk
