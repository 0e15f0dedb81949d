// SPDX-License-Identifier: Apache-2.0
//
// dump_writer: writes the records of a dump (docs/dump.md) as lines of JSON, into a buffer that may
// be too short.
//
// It allocates nothing, so that a dump can be taken even after running out of memory. Bytes that do
// not fit are counted and left out.
//
// Threads: none.
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>

#include "core/blocks/block_pool.hpp"

namespace quire {

class DumpWriter {
 public:
    DumpWriter(char *out, uint64_t capacity) : out_(out), capacity_(capacity) {}

    uint64_t size_bytes() const { return size_; }

    void open(const char *record) {
        put("{\"record\":\"");
        put(record);
        put('"');
    }
    void close() {
        put("}\n");
        ++records_;
    }
    // Writes the last record: the number of records, and FNV-1a of all bytes before it.
    void end() {
        uint64_t records = records_, hash = hash_;
        open("end");
        number("records", records);
        bits("fnv1a", hash);
        close();
    }

    void number(const char *name, uint64_t value) {
        field(name);
        digits(value);
    }
    void whole(const char *name, int64_t value) {
        field(name);
        if (value < 0) put('-');
        digits(value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value));
    }
    // Writes kNone as null.
    void index(const char *name, uint32_t value) {
        value == kNone ? null(name) : number(name, value);
    }
    void null(const char *name) {
        field(name);
        put("null");
    }
    void flag(const char *name, bool value) {
        field(name);
        put(value ? "true" : "false");
    }
    // REQUIRES: nothing in the text needs escaping, as in a name.
    void word(const char *name, const char *text) {
        field(name);
        put('"');
        put(text);
        put('"');
    }
    // For a value that may need all 64 bits, which not every reader's numbers have.
    void bits(const char *name, uint64_t value) {
        char text[24];
        std::snprintf(text, sizeof text, "0x%016" PRIx64, value);
        word(name, text);
    }
    void words(const char *name, const char *text);  // any text

    void open_list(const char *name) {
        field(name);
        put('[');
        is_first_ = true;
    }
    void item(uint64_t value) {
        separate();
        digits(value);
    }
    void pair(uint64_t a, uint64_t b) {
        separate();
        put('[');
        digits(a);
        put(',');
        digits(b);
        put(']');
    }
    void close_list() { put(']'); }
    void list(const char *name, const uint32_t *values, uint64_t count) {
        open_list(name);
        for (uint64_t i = 0; i < count; ++i) item(values[i]);
        close_list();
    }

 private:
    static constexpr uint64_t kOffsetBasis = 0xCBF29CE484222325u, kPrime = 0x100000001B3u;

    void put(char c) {
        if (size_ < capacity_) out_[size_] = c;
        ++size_;
        hash_ = (hash_ ^ static_cast<unsigned char>(c)) * kPrime;
    }
    void put(const char *text) {
        for (; *text != '\0'; ++text) put(*text);
    }
    void digits(uint64_t value) {
        char text[24];
        std::snprintf(text, sizeof text, "%" PRIu64, value);
        put(text);
    }
    void field(const char *name) {
        put(",\"");
        put(name);
        put("\":");
    }
    void separate() {
        if (!is_first_) put(',');
        is_first_ = false;
    }

    char *out_;
    uint64_t capacity_;
    uint64_t size_ = 0;  // of everything, whether or not it fitted
    uint64_t hash_ = kOffsetBasis;
    uint64_t records_ = 0;
    bool is_first_ = false;
};

inline void DumpWriter::words(const char *name, const char *text) {
    field(name);
    put('"');
    for (; *text != '\0'; ++text) {
        auto c = static_cast<unsigned char>(*text);
        if (c == '"' || c == '\\') put('\\');
        put(c < 0x20 ? ' ' : *text);
    }
    put('"');
}

}  // namespace quire
