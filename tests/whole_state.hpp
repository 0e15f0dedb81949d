// SPDX-License-Identifier: Apache-2.0
//
// whole_state: all state that decides what a cache does next (quire_cache_dump), compared before
// and after a call that was refused or a step that was undone.
//
// A refused call changes only two things: cache.calls, which keeps counting because sequences are
// marked with it to find one that is named twice; and leader.touched, the sequences that the next
// log checks for changes. An undone step also changes what undone_state() removes:
//   cache     calls, admissions         keep counting; the order of admissions is compared
//   cache     waiting_*                 the item that waited last, so that it is answered at once
//   cache     only_tenant, mixed_tenants   whether blocks must be checked for who wrote them; stays
//                                       set once set, and what the blocks say is compared
//   cache     open_step, and the records of that step: a dropped item leaves its place in it, so
//   sequence  change                    what a drop leaves is compared by state and by commit
//   pool      clock                     keeps counting; the blocks' stamps are compared
//   table     epoch                     keeps counting: shows a batch's row that a table changed
//   table     writable                  remembers an answer; null asks again
//   tree      first_unused, free        which record the next node takes; no call names records
//   list      head, tail                except of cached blocks; their count is compared
//   block     prev, next                likewise: no promise says which free block is taken next
//   block     ready, depends            of an unpublished block: set when it is published
//   block     stamp                     of a block that is not cached: set when it is cached
// So the order of cached content is compared, and every block id.
//
// Two caches with the same history also differ in the numbers they drew: handles, and, if the
// counters went on after an aborted step, the numbers given since. equal_history() compares the
// order of these numbers instead.
//
// Threads: one at a time per cache.
#pragma once

#include <quire/quire.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace quire::test {

// The dump without its last record, which is the sum of the others.
inline std::string whole_state(const quire_api &api, quire_cache *cache) {
    uint64_t size = 0;
    if (api.cache_dump(cache, 0, nullptr, 0, &size, nullptr) < 0) return "no dump";
    std::string text(size, '?');
    if (api.cache_dump(cache, 0, text.data(), size, &size, nullptr) != QUIRE_OK) return "no dump";
    text.erase(text.rfind("{\"record\":\"end\""));
    return text;
}

inline bool says(const std::string &record, const std::string &part) {
    return record.find(part) != std::string::npos;
}

inline bool is_record(const std::string &record, const char *kind) {
    return record.compare(0, 12 + std::char_traits<char>::length(kind),
                          std::string("{\"record\":\"") + kind + "\"") == 0;
}

// Where the value of a record's field begins and ends; npos if the record lacks the field.
inline std::pair<size_t, size_t> value_of(const std::string &record, const std::string &name) {
    const std::string key = ",\"" + name + "\":";
    const size_t at = record.find(key);
    if (at == std::string::npos) return {at, at};
    size_t end = at + key.size();
    while (end < record.size() && record.compare(end, 2, ",\"") != 0 && record[end] != '}') ++end;
    return {at + key.size(), end};
}

inline std::string field(const std::string &record, const std::string &name) {
    const auto [begin, end] = value_of(record, name);
    return begin == std::string::npos ? "" : record.substr(begin, end - begin);
}

inline void set_field(std::string *record, const std::string &name, const std::string &value) {
    const auto [begin, end] = value_of(*record, name);
    if (begin != std::string::npos) record->replace(begin, end - begin, value);
}

// A state without one field of each record of a kind.
inline std::string without(const std::string &state, const char *kind, const char *name) {
    std::istringstream lines(state);
    std::string out;
    for (std::string record; std::getline(lines, record); out += record + "\n") {
        if (is_record(record, kind)) set_field(&record, name, "-");
    }
    return out;
}

inline std::vector<const char *> exempt_fields(const std::string &record) {
    if (is_record(record, "cache"))
        return {"calls",          "admissions",  "waiting_seq",   "waiting_known", "waiting_tokens",
                "waiting_blocks", "only_tenant", "mixed_tenants", "open_step"};
    if (is_record(record, "sequence")) return {"change"};
    if (is_record(record, "leader")) return {"touched"};
    if (is_record(record, "pool")) return {"clock"};
    if (is_record(record, "table")) return {"epoch", "writable"};
    if (is_record(record, "tree")) return {"first_unused", "free"};
    if (is_record(record, "list") && !says(record, "\"list\":\"cached\"")) return {"head", "tail"};
    if (!is_record(record, "block")) return {};
    std::vector<const char *> exempt;
    if (!says(record, "\"state\":\"cached\"")) exempt = {"stamp", "prev", "next"};
    if (says(record, "\"node\":null")) exempt.insert(exempt.end(), {"ready", "depends"});
    return exempt;
}

// The part of the dump `whole` that a refused call must not change.
inline std::string refused_state(const std::string &whole) {
    return without(without(whole, "cache", "calls"), "leader", "touched");
}

// The part of the dump `whole` that an undone step must not change.
inline std::string undone_state(const std::string &whole) {
    std::istringstream lines(whole);
    std::string out, open = "null";
    for (std::string record; std::getline(lines, record);) {
        if (is_record(record, "cache")) open = field(record, "open_step");
        if (open != "null" && field(record, "step") == open) continue;
        for (const char *name : exempt_fields(record)) set_field(&record, name, "-");
        out += record + "\n";
    }
    return out;
}

// The part of a state that two caches with the same history share: numbers are replaced by their
// order, and handles are left out.
inline std::string equal_history(const std::string &state) {
    std::istringstream lines(state);
    std::vector<std::string> records;
    std::map<std::string, std::vector<uint64_t>> drawn;  // by kind of number
    const auto each_number = [](const std::string &record, auto use) {
        if (is_record(record, "sequence")) use("admitted", std::string("admitted"));
        if (is_record(record, "block") && says(record, "\"state\":\"cached\""))
            use("stamp", "stamp " + field(record, "group") + field(record, "tier"));
    };
    for (std::string record; std::getline(lines, record); records.push_back(record)) {
        set_field(&record, "handle", "-");
        each_number(record, [&](const char *name, const std::string &kind) {
            drawn[kind].push_back(std::stoull(field(record, name)));
        });
    }
    for (auto &[kind, numbers] : drawn) {
        numbers.push_back(0);  // no number was given
        std::sort(numbers.begin(), numbers.end());
        numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    }
    std::string out;
    for (std::string &record : records) {
        each_number(record, [&](const char *name, const std::string &kind) {
            const std::vector<uint64_t> &all = drawn[kind];
            const uint64_t number = std::stoull(field(record, name));
            const auto at = std::lower_bound(all.begin(), all.end(), number) - all.begin();
            set_field(&record, name, std::to_string(at));
        });
        out += record + "\n";
    }
    return out;
}

// A few of the records that differ; empty if all are equal.
inline std::string difference(const std::string &before, const std::string &after) {
    constexpr int kShown = 12;
    std::map<std::string, int> balance;
    std::string record, out;
    for (std::istringstream lines(before); std::getline(lines, record);) ++balance[record];
    for (std::istringstream lines(after); std::getline(lines, record);) --balance[record];
    int shown = 0;
    for (const auto &[text, left] : balance) {
        if (left == 0 || ++shown > kShown) continue;
        out += (left > 0 ? "before: " : "after:  ") + text + "\n";
    }
    return out.empty() && before != after ? "the same records in another order\n" : out;
}

}  // namespace quire::test
