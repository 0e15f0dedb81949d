// SPDX-License-Identifier: Apache-2.0
//
// dump_file: any text as a cache's dump (docs/dump.md) to the reader of `quire dump`.
//
// The first byte's bit 0 adds a last record with the right count and checksum. A refusal is a
// Failure; any other exception is a finding.
//
// Threads: none.

#include <unistd.h>

#include <cinttypes>
#include <string>

#include "bindings/cli/dump_file.hpp"
#include "bindings/cli/library.hpp"
#include "bytes.hpp"
#include "in_memory.hpp"

namespace {

using namespace quire::fuzz;

void add_end(std::string *text) {
    uint64_t hash = 0xCBF29CE484222325u;
    uint64_t records = 0;
    if (!text->empty() && text->back() != '\n') text->push_back('\n');
    for (char c : *text) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
        records += c == '\n';
    }
    char end[96];
    std::snprintf(end, sizeof end,
                  "{\"record\":\"end\",\"records\":%" PRIu64 ",\"fnv1a\":\"0x%016" PRIx64 "\"}\n",
                  records, hash);
    *text += end;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    Bytes input(data, size_bytes);
    bool ends = (input.byte() & 1) != 0;
    std::vector<uint8_t> rest = input.rest();
    std::string text(rest.begin(), rest.end());
    if (ends) add_end(&text);
    InMemory file(text.data(), text.size());
    try {
        quire::cli::DumpFile dump = quire::cli::read_dump(file.path());
        for (const quire::cli::Record &record : dump.records) {
            require(!quire::cli::identity(record).empty(), "a record has a name");
        }
    } catch (const quire::cli::Failure &failure) {
        require(failure.what()[0] != 0, "a refusal says why");
    }
    return 0;
}
