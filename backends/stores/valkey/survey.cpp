// SPDX-License-Identifier: Apache-2.0

#include <hiredis.h>

#include <algorithm>
#include <cerrno>

#include "valkey/lane.hpp"
#include "valkey/record.hpp"

namespace quire::valkey {

namespace {

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kSecond = 1'000 * kMillisecond;
constexpr uint64_t kCalmNs = 30 * kSecond;            // between looks where all is well
constexpr uint64_t kTroubledNs = 500 * kMillisecond;  // while a node fails
constexpr uint64_t kLeastNs = 100 * kMillisecond;     // between any two
constexpr uint64_t kSweepCount = 4'096;               // of the index, under its mutex
// A node's cursor need not come to its end: pages are asked for at a pace, and so many are 100
// million keys, the most that `known` may be.
constexpr uint64_t kPageNs = kMillisecond;
constexpr uint32_t kMostPages = 100'000;
constexpr size_t kMostCursor = 20;  // digits of a u64

bool contains(const std::vector<Address> &addresses, const Address &address) {
    return std::find(addresses.begin(), addresses.end(), address) != addresses.end();
}

}  // namespace

void Lane::survey() {
    drop_strangers();
    if (asked_ != nullptr && now_ns_ >= topology_deadline_ns_) {
        Node *silent = asked_;
        lose_topology(silent->address.text() + ": no answer in time", ETIMEDOUT);
        note_failure(silent, ETIMEDOUT);
    }
    if (asked_ == nullptr && now_ns_ >= topology_due_ns_) begin_topology();
    if (scanned_ != nullptr && now_ns_ >= scan_deadline_ns_) {
        Node *silent = scanned_;
        end_scan(false);
        note_failure(silent, ETIMEDOUT);
    }
    if (scanned_ != nullptr && now_ns_ >= page_due_ns_) ask_for_page();
    const bool may_scan = topology_.is_known() && !is_scanning_ && sweep_at_ == 0;
    if (may_scan && now_ns_ >= scan_due_ns_) begin_scan();
    sweep();
}

// The topology. ----------------------------------------------------------------------------------

void Lane::hurry_topology() {
    is_hurried_ = true;
    const uint64_t soonest = std::max(now_ns_ + 10 * kMillisecond, topology_heard_ns_ + kLeastNs);
    topology_due_ns_ = std::min(topology_due_ns_, soonest);
}

// Asks the next node that may be asked: those of the topology, then the seeds.
void Lane::begin_topology() {
    std::vector<Address> candidates = topology_.nodes();
    candidates.insert(candidates.end(), seeds_.begin(), seeds_.end());
    for (size_t i = 0; i < candidates.size(); ++i) {
        Node *node = node_at(candidates[candidate_++ % candidates.size()]);
        if (!node->breaker.allows(now_ns_)) continue;
        const bool is_connected = node->connection != nullptr && node->connection->is_ready();
        asked_ = node;
        node->wants_topology = true;
        topology_deadline_ns_ =
            now_ns_ + options_.timeout_ns + (is_connected ? 0 : options_.connect_timeout_ns);
        return;
    }
    topology_due_ns_ = now_ns_ + kLeastNs;
}

void Lane::lose_topology(const std::string &why, int error_number) {
    asked_->wants_topology = false;
    asked_ = nullptr;
    const size_t candidates = topology_.nodes().size() + seeds_.size();
    const bool were_all = ++topology_failures_ >= candidates;
    topology_due_ns_ = now_ns_ + (were_all ? kTroubledNs : kMillisecond);
    if (!is_first_ || topology_.is_known()) return;
    std::lock_guard lock(books_->mutex);
    books_->open_error = why;
    books_->open_error_number = error_number;
    books_->has_asked_all = were_all;
    if (were_all) books_->changed.notify_all();
}

void Lane::hear_topology(Node *node, const redisReply &reply) {
    if (asked_ != node) return;  // too late
    const std::string_view text =
        reply.str == nullptr ? std::string_view() : std::string_view(reply.str, reply.len);
    const char *problem = nullptr;
    if (text.starts_with("ERR This instance has cluster support disabled")) {
        topology_.set_single(node->address);
    } else if (problem = topology_.read(reply, node->address); problem != nullptr) {
        const bool is_error = reply.type == REDIS_REPLY_ERROR && !text.empty();
        const std::string why = is_error ? node->connection->secrets().hidden(text) : problem;
        return lose_topology(node->address.text() + ": " + why, EPROTO);
    }
    asked_ = nullptr;
    topology_failures_ = 0;
    topology_heard_ns_ = now_ns_;
    has_strangers_ = true;
    const bool is_calm = std::none_of(nodes_.begin(), nodes_.end(), [](const auto &entry) {
        return entry.second->breaker.has_failed();
    });
    topology_due_ns_ = now_ns_ + (is_calm ? kCalmNs : kTroubledNs);
    // The node may have read its slots before what then happened.
    if (is_hurried_) hurry_topology();
    if (!is_first_) return;
    report_nodes();
}

void Lane::report_nodes() {
    std::lock_guard lock(books_->mutex);
    books_->counts.nodes = static_cast<uint32_t>(topology_.primaries().size());
    books_->has_topology = true;
    books_->changed.notify_all();
}

// Nodes that left the cluster, once nothing is under way there.
void Lane::drop_strangers() {
    if (!has_strangers_) return;
    has_strangers_ = false;
    std::erase_if(nodes_, [this](const auto &entry) {
        Node *node = entry.second.get();
        if (contains(topology_.nodes(), entry.first)) return false;
        auto is_target = [node](const Request *request) { return request->target == node; };
        const bool is_used = node->flight_count != 0 || !node->waiting.empty() || node == asked_ ||
                             node == scanned_ ||
                             std::any_of(unrouted_.begin(), unrouted_.end(), is_target) ||
                             std::any_of(later_.begin(), later_.end(), is_target);
        has_strangers_ |= is_used;
        return !is_used;
    });
}

// The scan. --------------------------------------------------------------------------------------

void Lane::begin_scan() {
    is_scanning_ = true;
    ++scan_number_;
    left_to_scan_ = topology_.primaries();
    {
        std::lock_guard lock(books_->mutex);
        books_->index.begin_scan();
    }
    scan_next();
}

void Lane::scan_next() {
    scanned_ = nullptr;
    if (left_to_scan_.empty()) return end_scan(true);
    Node *node = node_at(left_to_scan_.back());
    left_to_scan_.pop_back();
    if (!node->breaker.allows(now_ns_)) return end_scan(false);
    scanned_ = node;
    cursor_.assign(1, '0');  // an "=" of GCC 12 warns of nothing
    pages_left_ = kMostPages;
    ask_for_page();
    scan_deadline_ns_ += options_.connect_timeout_ns;
}

void Lane::ask_for_page() {
    --pages_left_;
    page_due_ns_ = UINT64_MAX;
    scanned_->wants_scan = true;
    scan_deadline_ns_ = now_ns_ + options_.timeout_ns;
    std::lock_guard lock(books_->mutex);
    books_->index.begin_page();
}

void Lane::hear_scan(const redisReply &reply) {
    const bool is_page = reply.type == REDIS_REPLY_ARRAY && reply.elements == 2 &&
                         reply.element[0]->type == REDIS_REPLY_STRING &&
                         reply.element[1]->type == REDIS_REPLY_ARRAY;
    if (!is_page) return end_scan(false);
    const redisReply &names = *reply.element[1];
    {
        std::lock_guard lock(books_->mutex);
        for (size_t i = 0; i < names.elements; ++i) {
            const redisReply &name = *names.element[i];
            uint8_t key[32];
            if (name.type != REDIS_REPLY_STRING) continue;
            if (!read_name(options_.prefix, {name.str, name.len}, key)) continue;
            books_->index.see(key);
        }
    }
    const std::string cursor(reply.element[0]->str, reply.element[0]->len);
    if (cursor == "0") return scan_next();
    const bool goes_on = cursor != cursor_ && cursor.size() <= kMostCursor;
    if (!goes_on || pages_left_ == 0) {
        end_scan(false);
        scan_due_ns_ = now_ns_ + std::max(options_.scan_ns, kCalmNs);
        return;
    }
    cursor_ = cursor;
    page_due_ns_ = now_ns_ + kPageNs;
    scan_deadline_ns_ = page_due_ns_ + options_.timeout_ns;
}

void Lane::end_scan(bool is_whole) {
    if (scanned_ != nullptr) scanned_->wants_scan = false;
    scanned_ = nullptr;
    is_scanning_ = false;
    scan_due_ns_ = now_ns_ + (is_whole ? options_.scan_ns : std::min(options_.scan_ns, kSecond));
    std::lock_guard lock(books_->mutex);
    if (is_whole) sweep_at_ = books_->index.count();
    if (books_->has_scanned) return;
    books_->has_scanned = true;
    books_->stats.recovered = books_->index.count();
    books_->changed.notify_all();
}

// Keys that a whole scan did not see: their values are gone, under which label is not known.
void Lane::sweep() {
    if (sweep_at_ == 0) return;
    std::lock_guard lock(books_->mutex);
    if (books_->index.sweep(kSweepCount, &sweep_at_)) books_->tell_lost();
}

}  // namespace quire::valkey
