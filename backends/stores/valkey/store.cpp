// SPDX-License-Identifier: Apache-2.0

#include "valkey/store.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "shared/refusal.hpp"
#include "valkey/record.hpp"

namespace quire::valkey {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kScanPatience{10};

uint64_t now_ns() {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
            .count());
}

// Appends the addresses of a seed that are new. 0, or what getaddrinfo says.
int resolve_one(const Address &seed, std::vector<Address> *out) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (int result = getaddrinfo(seed.host.c_str(), nullptr, &hints, &found)) return result;
    int result = EAI_NONAME;
    for (const addrinfo *at = found; at != nullptr; at = at->ai_next) {
        char host[NI_MAXHOST];
        if (getnameinfo(at->ai_addr, at->ai_addrlen, host, sizeof host, nullptr, 0,
                        NI_NUMERICHOST) != 0) {
            continue;
        }
        result = 0;
        const Address address{host, seed.port};
        if (std::find(out->begin(), out->end(), address) == out->end()) out->push_back(address);
    }
    freeaddrinfo(found);
    return result;
}

}  // namespace

Store::Store(const Options &options)
    : options_(options), books_(options_), slots_(Books::kMostRequests) {
    for (Request &slot : slots_) free_.push_back(&slot);
}

quire_status Store::open(const Options &options, std::unique_ptr<Store> *out, quire_error *error) {
    auto store = std::make_unique<Store>(options);
    if (options.uses_tls) {
        if (quire_status status = store->tls_.open(options, error)) return status;
    }
    if (quire_status status = store->resolve(error)) return status;
    if (quire_status status = store->start_lanes(error)) return status;
    if (quire_status status = store->wait_until_known(error)) return status;
    *out = std::move(store);
    return QUIRE_OK;
}

// Now, because a lane may not wait for a name server.
quire_status Store::resolve(quire_error *error) {
    for (const Address &seed : options_.nodes) {
        const int result = resolve_one(seed, &seeds_);
        if (result == 0 || &seed != &options_.nodes.back() || !seeds_.empty()) continue;
        return fail(error, QUIRE_E_OS, "option 'nodes': %.200s is not found: %s", seed.host.c_str(),
                    gai_strerror(result));
    }
    return QUIRE_OK;
}

quire_status Store::start_lanes(quire_error *error) {
    int result = books_.open();
    for (uint32_t i = 0; i < options_.thread_count && result == 0; ++i) {
        lanes_.push_back(std::make_unique<Lane>(
            options_, seeds_, options_.uses_tls ? &tls_ : nullptr, &books_, i == 0));
        result = lanes_.back()->start();
    }
    if (result == 0) return QUIRE_OK;
    return fail_os(error, QUIRE_E_OS, -result, "cannot start the store's threads: %s",
                   std::strerror(-result));
}

quire_status Store::wait_until_known(quire_error *error) {
    const auto patience = std::chrono::nanoseconds(
        (seeds_.size() + 1) * (options_.connect_timeout_ns + options_.timeout_ns));
    std::unique_lock lock(books_.mutex);
    books_.changed.wait_until(lock, Clock::now() + patience,
                              [this] { return books_.has_topology || books_.has_asked_all; });
    if (!books_.has_topology) {
        const bool is_silent = books_.open_error.empty();
        return fail_os(error, QUIRE_E_OS, is_silent ? ETIMEDOUT : books_.open_error_number,
                       "no node of the cluster could be asked for its slots; the last one, %.300s",
                       is_silent ? "did not answer" : books_.open_error.c_str());
    }
    if (options_.scan_ns == 0 || options_.known_count == 0) return QUIRE_OK;
    // A longer scan goes on while the store is used.
    books_.changed.wait_until(lock, Clock::now() + kScanPatience,
                              [this] { return books_.has_scanned; });
    return QUIRE_OK;
}

bool Store::is_closing() const {
    std::lock_guard lock(books_.mutex);
    return is_closing_;
}

bool Store::close_wait(uint64_t timeout_ns) {
    constexpr uint64_t kLongest = uint64_t{1} << 60;  // a clock would overflow; 36 years
    std::vector<std::unique_ptr<Lane>> ended;         // without the mutex, which they take
    std::unique_lock lock(books_.mutex);
    is_closing_ = true;
    const auto until = Clock::now() + std::chrono::nanoseconds(std::min(timeout_ns, kLongest));
    const bool has_ended =
        books_.changed.wait_until(lock, until, [this] { return books_.open_count == 0; });
    if (has_ended) ended.swap(lanes_);
    return has_ended;
}

void Store::fill(Request *slot, const quire_store_request &request) {
    slot->begin_again();
    slot->is_cancelled = false;
    slot->answer = {};
    slot->answer.kind = request.kind;
    slot->answer.cookie = request.cookie;
    slot->answer.label = request.label;
    slot->pieces.assign(request.pieces, request.pieces + request.piece_count);
    slot->size_bytes = 0;
    for (const quire_store_piece &piece : slot->pieces) slot->size_bytes += piece.size_bytes;
    slot->name = name_of_key(options_.prefix, request.label.key);
    slot->slot = slot_of(slot->name);
    // A value that is known to be there is not sent before the cluster says that it is not.
    const Index::Entry *known = books_.index.find(request.label.key);
    if (request.kind == QUIRE_STORE_PUT && known != nullptr) slot->step = Step::compare;
}

void Store::take(Request *slot) {
    slot->ticket = ++last_ticket_;
    slot->deadline_ns = now_ns() + options_.timeout_ns;
    if (slot->kind() == QUIRE_STORE_FLUSH) return books_.add_flush(slot);
    books_.add_open(slot);
    // By its key, so that one lane's connection keeps the order of all that concerns a key.
    lanes_[slot->slot % lanes_.size()]->submit(slot);
}

uint32_t Store::submit(const quire_store_request *requests, uint32_t count, uint32_t stride) {
    uint32_t taken = 0;
    std::lock_guard lock(books_.mutex);
    if (is_closing_) return 0;
    for (; taken < count && !free_.empty(); ++taken) {
        try {
            fill(free_.back(), element_of<quire_store_request>(requests, taken, stride));
        } catch (const std::bad_alloc &) {
            if (taken == 0) throw;
            break;
        }
        take(free_.back());
        free_.pop_back();
    }
    for (auto &lane : lanes_) lane->wake();
    return taken;
}

uint32_t Store::reap(quire_store_answer *answers, uint32_t capacity, uint32_t stride) {
    std::lock_guard lock(books_.mutex);
    uint32_t count = 0;
    quire_store_answer answer;
    Request *freed = nullptr;
    for (; count < capacity && books_.take(&answer, &freed); ++count) {
        set_element(answers, count, stride, answer);
        if (freed != nullptr) free_.push_back(freed);
    }
    return count;
}

void Store::cancel(uint64_t cookie) {
    std::lock_guard lock(books_.mutex);
    books_.cancel(cookie);
    for (auto &lane : lanes_) lane->look_for_cancelled();
    for (auto &lane : lanes_) lane->wake();
}

void Store::find(const quire_store_label *labels, uint32_t count, uint32_t stride,
                 uint8_t *found) const {
    std::lock_guard lock(books_.mutex);
    for (uint32_t i = 0; i < count; ++i) {
        auto label = element_of<quire_store_label>(labels, i, stride);
        const Index::Entry *entry = books_.index.find(label.key);
        found[i] = QUIRE_STORE_UNKNOWN;
        if (entry == nullptr) continue;
        const bool is_other = entry->has_label && !are_equal(entry->label, label);
        found[i] = is_other ? QUIRE_STORE_ABSENT : QUIRE_STORE_PRESENT;
    }
}

void Store::get_info(quire_store_info *out) const {
    out->flags = QUIRE_STORE_REMOTE;
    out->max_value_bytes = options_.max_value_bytes;
    out->max_requests = Books::kMostRequests;
    std::lock_guard lock(books_.mutex);
    const Counts &counts = books_.counts;
    auto number = [](uint64_t count) { return static_cast<unsigned long long>(count); };
    std::snprintf(out->place, sizeof out->place,
                  "cluster of %u at %.60s; connections %llu, lost %llu, redirects %llu, "
                  "timeouts %llu, breaks %llu",
                  counts.nodes, options_.nodes.front().text().c_str(), number(counts.connects),
                  number(counts.lost_connections), number(counts.redirects),
                  number(counts.timeouts), number(counts.breaks));
}

quire_store_stats Store::stats() const {
    std::lock_guard lock(books_.mutex);
    quire_store_stats stats = books_.stats;
    stats.records = books_.index.count();
    stats.value_bytes = books_.index.value_bytes();
    stats.used_bytes = stats.value_bytes + stats.records * kHeaderBytes;
    stats.written_bytes = books_.written_bytes;
    stats.read_bytes = books_.read_bytes;
    return stats;
}

}  // namespace quire::valkey
