// SPDX-License-Identifier: Apache-2.0

#include "counters.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace fakegpu {

namespace {

constexpr uint32_t kSectorBytes = 32, kBanks = 32, kBankBytes = 4, kPassBytes = 128;

const char *base_name(const char *path) {
    const char *slash = std::strrchr(path, '/');
    return slash == nullptr ? path : slash + 1;
}

// The aligned pieces of `piece_bytes` that the lanes' accesses touch, each once. Most requests go
// through memory in the order of lanes, and need no sorting.
struct Pieces {
    std::array<uint64_t, 4 * Recorder::kMostLanes> of;
    size_t count = 0;

    Pieces(uint64_t lanes, const uint64_t *addresses, uint32_t size_bytes, uint32_t piece_bytes) {
        for (; lanes != 0; lanes &= lanes - 1) {
            uint64_t address = addresses[std::countr_zero(lanes)];
            uint64_t last = (address + size_bytes - 1) / piece_bytes;
            for (uint64_t at = address / piece_bytes; at <= last; ++at) of[count++] = at;
        }
        auto end = of.begin() + static_cast<ptrdiff_t>(count);
        if (!std::is_sorted(of.begin(), end)) std::sort(of.begin(), end);
        count = static_cast<size_t>(std::unique(of.begin(), end) - of.begin());
    }
};

// Accesses of a request have one size and are aligned to it: two are the same or share nothing.
uint64_t distinct_bytes(uint64_t lanes, const uint64_t *addresses, uint32_t size_bytes) {
    return Pieces(lanes, addresses, 1, size_bytes).count * size_bytes;
}

uint64_t divided_up(uint64_t value, uint64_t by) { return (value + by - 1) / by; }

// The passes of one group of lanes: what the fullest bank has to serve.
uint32_t passes_of(uint64_t lanes, const uint64_t *addresses, uint32_t size_bytes) {
    std::array<uint32_t, kBanks> words{};
    Pieces pieces(lanes, addresses, size_bytes, kBankBytes);
    for (size_t i = 0; i < pieces.count; ++i) ++words[pieces.of[i] % kBanks];
    return *std::max_element(words.begin(), words.end());
}

// Adds the passes of a request, and those of the same bytes if they lay side by side.
void add_wavefronts(uint64_t lanes, const uint64_t *addresses, SiteCount &count) {
    uint32_t group = kPassBytes / std::max(count.size_bytes, kBankBytes);  // lanes
    for (uint32_t first = 0; first < Recorder::kMostLanes; first += group) {
        uint64_t some = lanes & ((uint64_t{1} << group) - 1) << first;
        if (some == 0) continue;
        count.units += passes_of(some, addresses, count.size_bytes);
        count.least += divided_up(distinct_bytes(some, addresses, count.size_bytes), kPassBytes);
    }
}

bool is_same_site(const SiteCount &a, const SiteCount &b) {
    return a.kernel == b.kernel && a.line == b.line && a.kind == b.kind &&
           a.size_bytes == b.size_bytes && std::strcmp(a.file, b.file) == 0;
}

std::string field(const char *name, uint64_t value) {
    return ", \"" + std::string(name) + "\": " + std::to_string(value);
}

}  // namespace

const char *name_of(Kind kind) {
    static constexpr const char *kNames[] = {
        "global_load",  "global_store",  "global_atomic", "global_copy",   "shared_load",
        "shared_store", "shared_atomic", "shared_copy",   "shared_matrix", "matrix",
        "shuffle",      "ballot",        "barrier",       "exponential"};
    static_assert(std::size(kNames) == static_cast<size_t>(Kind::count_of_kinds));
    return kNames[static_cast<size_t>(kind)];
}

void Counters::add(const char *kernel, const SiteCount &count) {
    SiteCount added = count;
    added.kernel = kernel;
    std::lock_guard lock(mutex_);
    for (SiteCount &known : counts_) {
        if (!is_same_site(known, added)) continue;
        known.requests += added.requests;
        known.bytes += added.bytes;
        known.units += added.units;
        known.least += added.least;
        return;
    }
    counts_.push_back(added);
}

void Counters::clear() {
    std::lock_guard lock(mutex_);
    counts_.clear();
}

std::vector<SiteCount> Counters::counts() const {
    std::lock_guard lock(mutex_);
    return counts_;
}

std::string Counters::json() const {
    std::string text = "[";
    for (const SiteCount &count : counts()) {
        text += std::string(text.size() == 1 ? "" : ",") + "\n{\"kernel\": \"" + count.kernel +
                "\", \"site\": \"" + count.file + ':' + std::to_string(count.line) +
                "\", \"kind\": \"" + name_of(count.kind) + '"' +
                field("size_bytes", count.size_bytes) + field("requests", count.requests) +
                field("bytes", count.bytes) + field("units", count.units) +
                field("least", count.least) + '}';
    }
    return text + "\n]\n";
}

Recorder::Site &Recorder::site_of(Kind kind, uint32_t size_bytes,
                                  const std::source_location &where) {
    // A source_location is a pointer to what the compiler wrote down for this call.
    static_assert(sizeof(std::source_location) == sizeof(uint64_t));
    uint64_t key = std::bit_cast<uint64_t>(where) ^ uint64_t { size_bytes } << 48 ^
                   static_cast<uint64_t>(kind) << 56;
    auto [at, is_new] = index_.try_emplace(key, static_cast<uint32_t>(sites_.size()));
    if (is_new) {
        Site &site = sites_.emplace_back();
        site.where = where;
        site.count.file = base_name(where.file_name());
        site.count.line = where.line();
        site.count.kind = kind;
        site.count.size_bytes = size_bytes;
    }
    return sites_[at->second];
}

void Recorder::note(uint32_t warp, uint32_t lane, Kind kind, uint64_t address, uint32_t size_bytes,
                    const std::source_location &where) {
    Site &site = site_of(kind, size_bytes, where);
    std::unique_ptr<Open> &open = site.open[warp];
    if (open == nullptr) open = std::make_unique<Open>();
    if (open->used == 0) {
        touched_[warp].push_back(static_cast<uint32_t>(&site - sites_.data()));
    }
    uint32_t number = open->made[lane]++;
    if (number == open->used) {
        if (open->used == open->requests.size()) open->requests.emplace_back();
        open->requests[open->used++].lanes = 0;
    }
    Request &request = open->requests[number];
    request.lanes |= uint64_t{1} << lane;
    request.addresses[lane] = address;
}

void Recorder::tally(const Request &request, SiteCount &count) const {
    ++count.requests;
    if (count.size_bytes == 0) {
        // 32 lanes multiply 16 columns by two instructions.
        uint32_t instructions = count.kind == Kind::matrix && width_ == 32 ? 2 : 1;
        count.units += instructions;
        count.least += instructions;
        return;
    }
    uint64_t bytes = distinct_bytes(request.lanes, request.addresses, count.size_bytes);
    count.bytes += bytes;
    if (is_global(count.kind)) {
        count.units +=
            Pieces(request.lanes, request.addresses, count.size_bytes, kSectorBytes).count;
        count.least += divided_up(bytes, kSectorBytes);
    } else {
        add_wavefronts(request.lanes, request.addresses, count);
    }
}

void Recorder::end_warp(uint32_t warp) {
    for (uint32_t index : touched_[warp]) {
        Site &site = sites_[index];
        Open &open = *site.open[warp];
        for (uint32_t i = 0; i < open.used; ++i) tally(open.requests[i], site.count);
        open.used = 0;
        std::fill(std::begin(open.made), std::end(open.made), 0u);
    }
    touched_[warp].clear();
}

void Recorder::add_to(Counters *counters, const char *kernel) {
    for (const Site &site : sites_) {
        if (site.count.requests != 0) counters->add(kernel, site.count);
    }
}

}  // namespace fakegpu
