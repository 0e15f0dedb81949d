// SPDX-License-Identifier: Apache-2.0
//
// recovery: finds the records of a segment's file by their headers.
//
// A value is not read: its checksum is checked by the get that reads it, or by the open if an older
// record of the key is there, which stays if the newer one is torn. A value record that
// reaches past the end of the file is not there. After something that is no record, the search
// goes on at the next multiple of 4,096 bytes.
//
// Threads: any, on different files.
#pragma once

#include <cstdint>
#include <vector>

#include "disk/files.hpp"
#include "disk/record.hpp"

namespace quire::disk {

struct Scan {
    int error = 0;                 // a negative errno: `records` holds none
    uint32_t unknown_version = 0;  // not 0: the file is of another version
    bool is_foreign = false;       // of another store, or no segment at all
    std::vector<Record> records;   // in the order of their offsets
    uint64_t size_bytes = 0;       // of the file
    uint64_t allocated_bytes = 0;
    uint64_t used_bytes = 0;     // up to the last unit that is not zeros, or could not be read
    uint64_t skipped_bytes = 0;  // that are neither zeros nor a record
    uint64_t damaged = 0;        // record headers with a wrong checksum
    uint64_t read_bytes = 0;
};

// `number`: by the file's name. Throws std::bad_alloc.
Scan scan_segment(File &file, uint64_t number, const StoreId &store);

// The store of a segment's file, where the file says so.
bool read_store_of(File &file, StoreId *out);

}  // namespace quire::disk
