// SPDX-License-Identifier: Apache-2.0

#include "dump_file.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "library.hpp"

namespace quire::cli {

namespace {

constexpr uint64_t kVersion = 1;
constexpr uint64_t kOffsetBasis = 0xCBF29CE484222325u, kPrime = 0x100000001B3u;
// A block's line is 300 bytes; only a list, such as a sequence's tokens, can be long.
constexpr size_t kLongestLine = size_t{1} << 30;

// FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv) over all lines except the last.
void hash_line(const std::string &line, uint64_t *hash) {
    auto add = [hash](char c) { *hash = (*hash ^ static_cast<unsigned char>(c)) * kPrime; };
    for (char c : line) add(c);
    add('\n');
}

std::string as_hex(uint64_t value) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%016" PRIx64, value);
    return text;
}

[[noreturn]] void refuse(const std::string &path, const std::string &why) {
    throw Failure(path + ": " + why, kUsage);
}

Record parse(const std::string &path, const std::string &line, size_t number) {
    Record record = Record::parse(line, nullptr, false);
    bool is_record = record.is_object() && record.contains("record") &&
                     record["record"].is_string() &&
                     !record["record"].get_ref<const std::string &>().empty();
    if (is_record) return record;
    if (number == 1) refuse(path, "not a cache dump: it does not begin with a record");
    refuse(path, "damaged dump: line " + std::to_string(number) + " is not a record");
}

void check_first(const std::string &path, const Record &first, DumpFile *file) {
    if (first["record"] != "quire dump" || !first.contains("version") ||
        !first["version"].is_number_unsigned()) {
        refuse(path, "not a cache dump: its first record is of another kind");
    }
    file->version = first["version"].get<uint64_t>();
    if (file->version != kVersion) {
        refuse(path, "a dump of version " + std::to_string(file->version) +
                         ", but this command reads version " + std::to_string(kVersion) +
                         ": use the command of the library that wrote it");
    }
    auto tokens = first.find("tokens");
    if (tokens != first.end() && !tokens->is_boolean())
        refuse(path, "damaged dump: tokens in its first record is neither true nor false");
    file->tokens = tokens != first.end() && tokens->get<bool>();
}

void check_last(const std::string &path, const Record &last, uint64_t records, uint64_t hash) {
    if (last["record"] != "end") {
        refuse(path, "the dump was cut short: its last record is missing");
    }
    auto count = last.find("records");
    if (count == last.end() || !count->is_number_unsigned())
        refuse(path, "damaged dump: its last record does not say how many records there are");
    if (count->get<uint64_t>() != records) {
        refuse(path, "damaged dump: it claims " + count->dump() + " records but has " +
                         std::to_string(records));
    }
    auto sum = last.find("fnv1a");
    if (sum == last.end() || *sum != as_hex(hash)) {
        refuse(path, "damaged dump: its checksum does not match its content");
    }
}

const std::map<std::string, std::vector<std::string>> kIdentity = {
    {"step", {"step"}},
    {"change", {"step", "index"}},
    {"edit", {"step", "index"}},
    {"copy", {"step", "index"}},
    {"seen", {"step", "index"}},
    {"preemption", {"step", "index"}},
    {"group", {"group"}},
    {"pool", {"group", "tier"}},
    {"scope", {"id"}},
    {"list", {"group", "tier", "list"}},
    {"node", {"id"}},
    {"block", {"group", "tier", "id"}},
    {"sequence", {"id"}},
    {"namespace", {"id"}},
    {"place", {"block"}},
    {"table", {"id", "group"}},
    {"load", {"id"}},
};

}  // namespace

std::vector<const Record *> DumpFile::of(const std::string &kind) const {
    std::vector<const Record *> found;
    for (const Record &record : records) {
        if (record["record"] == kind) found.push_back(&record);
    }
    return found;
}

std::string identity(const Record &record) {
    auto kind = record["record"].get<std::string>();
    std::string words = kind;
    auto names = kIdentity.find(kind);
    if (names == kIdentity.end()) return words;
    for (const std::string &name : names->second) {
        if (!record.contains(name)) continue;
        const Record &value = record[name];
        if (name != kind && !value.is_string()) words += " " + name;
        words += " " + (value.is_string() ? value.get<std::string>() : value.dump());
    }
    return words;
}

DumpFile read_dump(const std::string &path) {
    std::error_code failed;
    if (std::filesystem::is_directory(path, failed)) throw Failure(path + " is a folder", kUsage);
    std::ifstream in(path, std::ios::binary);
    if (!in) throw Failure(path + " cannot be read: " + std::strerror(errno), kUsage);
    int begin = in.peek();
    if (begin == std::ifstream::traits_type::eof()) refuse(path, "not a cache dump: it is empty");
    if (begin != '{') refuse(path, "not a cache dump: it does not begin with a record");
    DumpFile file;
    std::string line;
    Record last;
    uint64_t hash = kOffsetBasis, hash_before = kOffsetBasis;
    for (size_t number = 1; std::getline(in, line); ++number) {
        if (in.eof()) refuse(path, "the dump was cut short: its last line is incomplete");
        if (line.size() > kLongestLine) refuse(path, "damaged dump: a line is too long");
        if (number > 1 && last["record"] == "end") {
            refuse(path, "damaged dump: there is more after its last record");
        }
        Record record = parse(path, line, number);
        if (number == 1) check_first(path, record, &file);
        if (number > 2) file.records.push_back(std::move(last));
        hash_before = hash;
        hash_line(line, &hash);
        last = std::move(record);
    }
    if (in.bad()) throw Failure(path + " cannot be read: " + std::strerror(errno), kUsage);
    check_last(path, last, file.records.size() + 1, hash_before);
    return file;
}

}  // namespace quire::cli
