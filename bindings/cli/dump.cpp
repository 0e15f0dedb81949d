// SPDX-License-Identifier: Apache-2.0

#include "dump.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>

#include "dump_file.hpp"

namespace quire::cli {

namespace {

std::string text_of(const Record &record, const std::string &name) {
    if (!record.contains(name) || record[name].is_null()) return "-";
    const Record &value = record[name];
    return value.is_string() ? value.get<std::string>() : value.dump();
}

// Makes each column as wide as its widest cell.
void print_rows(const std::vector<std::vector<std::string>> &rows) {
    std::vector<size_t> widths(rows.front().size());
    for (const auto &row : rows) {
        for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    for (const auto &row : rows) {
        std::string line;
        for (size_t i = 0; i < row.size(); ++i) {
            line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
        }
        line.erase(line.find_last_not_of(' ') + 1);
        std::printf("%s\n", line.c_str());
    }
}

// Prints one row for each record of a kind, with the fields that a person looks for first.
void print_kind(const DumpFile &file, const std::string &kind,
                const std::vector<std::string> &names) {
    std::vector<std::vector<std::string>> rows(1);
    for (const std::string &name : names) {
        rows[0].push_back(name == "id" ? kind : name);
        for (char &c : rows[0].back()) c = c == '_' ? ' ' : c;
    }
    for (const Record *record : file.of(kind)) {
        rows.emplace_back();
        for (const std::string &name : names) rows.back().push_back(text_of(*record, name));
    }
    if (rows.size() == 1) return;
    std::printf("\n");
    print_rows(rows);
}

// Prints how many blocks of each pool are in each state.
void print_pools(const DumpFile &file) {
    const std::vector<std::string> states = {"free", "draining", "held", "cached", "parked"};
    std::vector<std::string> pools;
    std::map<std::string, std::map<std::string, uint64_t>> counts;
    for (const Record *block : file.of("block")) {
        std::string pool = text_of(*block, "group") + " " + text_of(*block, "tier");
        if (counts[pool].empty()) pools.push_back(pool);
        ++counts[pool][text_of(*block, "state")];
    }
    std::vector<std::vector<std::string>> rows(1, {"group", "tier"});
    rows[0].insert(rows[0].end(), states.begin(), states.end());
    for (const std::string &pool : pools) {
        size_t space = pool.find(' ');
        rows.push_back({pool.substr(0, space), pool.substr(space + 1)});
        for (const std::string &state : states) {
            rows.back().push_back(std::to_string(counts[pool][state]));
        }
    }
    std::printf("\n");
    print_rows(rows);
}

void print_tables(const DumpFile &file) {
    for (const Record *cache : file.of("cache")) {
        std::printf("quire dump %llu, library %s.%s, %s tokens\n",
                    static_cast<unsigned long long>(file.version),
                    text_of(*cache, "library_major").c_str(),
                    text_of(*cache, "library_minor").c_str(), file.tokens ? "with" : "without");
        std::printf("oldest unfinished step %s, next %s, open %s\n",
                    text_of(*cache, "oldest_step").c_str(), text_of(*cache, "next_step").c_str(),
                    text_of(*cache, "open_step").c_str());
        if (text_of(*cache, "stopped_by") == "-") continue;
        std::printf("stopped by a broken invariant: %s (%s:%s)\n",
                    text_of(*cache, "stopped_by").c_str(), text_of(*cache, "stopped_in").c_str(),
                    text_of(*cache, "stopped_at").c_str());
    }
    print_kind(file, "step", {"step", "phase", "queue", "rows", "has_run", "failed", "waits_for"});
    print_pools(file);
    print_kind(file, "namespace",
               {"id", "number", "sequences", "blocks_held", "quota_blocks", "queries", "hits"});
    print_kind(file, "sequence",
               {"id", "handle", "namespace", "known", "computed", "drafts", "blocks_held",
                "last_step", "change", "flags"});
    print_kind(file, "load", {"id", "sequence", "state", "first", "length", "awaited"});
    std::printf("\n%zu nodes, %zu scopes, %zu changes, %zu edits, %zu copies; --json shows all\n",
                file.of("node").size(), file.of("scope").size(), file.of("change").size(),
                file.of("edit").size(), file.of("copy").size());
}

void print_json(const DumpFile &file) {
    Record out;
    out["version"] = file.version;
    out["tokens"] = file.tokens;
    for (Record record : file.records) {
        auto kind = record["record"].get<std::string>();
        record.erase("record");
        out[kind].push_back(record);
    }
    std::printf("%s\n", out.dump().c_str());
}

struct Difference {
    std::string what;  // the record's identity
    Record fields;     // name: [before, after]; null: only one dump has the record
    bool is_new = false;
};

// The fields that differ between two records of the same identity.
Record compare(const Record &before, const Record &after) {
    Record fields = Record::object();
    for (const auto &[name, value] : before.items()) {
        Record other = after.contains(name) ? after[name] : Record();
        if (other != value) fields[name] = Record::array({value, other});
    }
    for (const auto &[name, value] : after.items()) {
        if (!before.contains(name)) fields[name] = Record::array({Record(), value});
    }
    return fields;
}

std::vector<Difference> find_differences(const DumpFile &before, const DumpFile &after) {
    std::map<std::string, const Record *> there;
    for (const Record &record : after.records) there[identity(record)] = &record;
    std::vector<Difference> found;
    for (const Record &record : before.records) {
        std::string name = identity(record);
        auto at = there.find(name);
        if (at == there.end()) {
            found.push_back({name, Record(), false});
            continue;
        }
        Record fields = compare(record, *at->second);
        if (!fields.empty()) found.push_back({name, fields, false});
        there.erase(at);
    }
    for (const Record &record : after.records) {
        std::string name = identity(record);
        if (there.contains(name)) found.push_back({name, Record(), true});
    }
    return found;
}

void print_difference(const Difference &difference) {
    if (difference.fields.is_null()) {
        std::printf("%c %s\n", difference.is_new ? '+' : '-', difference.what.c_str());
        return;
    }
    std::string line = "  " + difference.what + ":";
    bool is_first = true;
    for (const auto &[name, values] : difference.fields.items()) {
        line += (is_first ? " " : ", ") + name + " " + values[0].dump() + " -> " + values[1].dump();
        is_first = false;
    }
    std::printf("%s\n", line.c_str());
}

void print_differences(const std::vector<Difference> &differences, bool json) {
    if (!json) {
        for (const Difference &difference : differences) print_difference(difference);
        if (differences.empty()) std::printf("no record differs\n");
        return;
    }
    Record out = Record::array();
    for (const Difference &difference : differences) {
        Record row;
        row["record"] = difference.what;
        row["change"] = !difference.fields.is_null() ? "differs"
                        : difference.is_new          ? "added"
                                                     : "removed";
        if (!difference.fields.is_null()) row["fields"] = difference.fields;
        out.push_back(row);
    }
    std::printf("%s\n", out.dump().c_str());
}

}  // namespace

void dump(const DumpOptions &options) {
    size_t wanted = options.diff ? 2 : 1;
    if (options.files.size() != wanted) {
        throw Failure(options.diff ? "--diff compares two dumps: name both"
                                   : "name one dump, or compare two with --diff",
                      kUsage);
    }
    DumpFile first = read_dump(options.files[0]);
    if (options.diff) {
        return print_differences(find_differences(first, read_dump(options.files[1])),
                                 options.json);
    }
    options.json ? print_json(first) : print_tables(first);
}

void write_dump(quire_cache *cache, const std::string &path) {
    Error error;
    uint64_t size_bytes = 0;
    check(library().cache_dump(cache, 0, nullptr, 0, &size_bytes, &error), error);
    std::vector<char> bytes(size_bytes);
    check(library().cache_dump(cache, 0, bytes.data(), bytes.size(), &size_bytes, &error), error);
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) throw Failure(path + " cannot be written: " + std::strerror(errno), kFailed);
}

}  // namespace quire::cli
