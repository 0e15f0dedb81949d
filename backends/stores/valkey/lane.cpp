// SPDX-License-Identifier: Apache-2.0

#include "valkey/lane.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <new>
#include <system_error>
#include <utility>

#include "valkey/record.hpp"

namespace quire::valkey {

namespace {

// Per node: more commands than these wait here, where a cancellation still finds them.
constexpr uint64_t kMostQueuedBytes = uint64_t{1} << 20;
constexpr uint32_t kMostFlights = 256;
constexpr uint64_t kRetryNs = 10'000'000;
// Nodes that only an ASK named, for lack of room for an endless number of them.
constexpr size_t kMostStrangers = 1024;
// CLUSTER SLOTS: a range for each slot, of 32 objects: bounds, and three nodes with metadata. An
// array of ranges, of nodes, of metadata, of its texts.
constexpr Bounds kSlots{4, uint64_t{kSlotCount} * 32, uint64_t{32} << 20};
// SCAN: a cursor and an array of names. A node may give more than it is asked for (1,000).
constexpr Bounds kPage{2, 65'536, uint64_t{8} << 20};

uint64_t clock_ns() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace

Lane::Lane(const Options &options, const std::vector<Address> &seeds, const Tls *tls, Books *books,
           bool is_first)
    : options_(options), seeds_(seeds), tls_(tls), books_(books), is_first_(is_first) {
    for (auto *list : {&inbox_, &cancelled_, &unrouted_, &routing_, &later_}) {
        list->reserve(Books::kMostRequests);
    }
    const bool scans = is_first && options.scan_ns != 0 && options.known_count != 0;
    if (!scans) scan_due_ns_ = UINT64_MAX;
}

Lane::~Lane() {
    stop();
    if (epoll_ >= 0) ::close(epoll_);
    if (wake_ >= 0) ::close(wake_);
}

int Lane::start() {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ < 0) return -errno;
    wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake_ < 0) return -errno;
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) != 0) return -errno;
    // The host's signals are for its own threads, and SIGPIPE of a socket must not end the process.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = 0;
    try {
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error &failure) {
        result = -failure.code().value();
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return result;
}

void Lane::wake() {
    uint64_t one = 1;
    while (::write(wake_, &one, sizeof one) < 0 && errno == EINTR) continue;
}

void Lane::stop() {
    if (!thread_.joinable()) return;
    {
        std::lock_guard lock(books_->mutex);
        is_stopping_ = true;
    }
    wake();
    thread_.join();
}

// The loop. --------------------------------------------------------------------------------------

void Lane::run() {
    bool goes_on = true;
    while (goes_on) {
        try {
            now_ns_ = clock_ns();
            goes_on = take_inbox();
            if (goes_on) round();
        } catch (const std::bad_alloc &) {
            // Requests that it hit stay where they were, and end at their deadlines.
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    asked_ = scanned_ = nullptr;
    for (auto &[address, node] : nodes_) node->connection.reset();
    nodes_.clear();
}

bool Lane::take_inbox() {
    {
        std::lock_guard lock(books_->mutex);
        for (Request *request : inbox_) {
            open_.splice(open_.end(), request->element);
            unrouted_.push_back(request);
        }
        inbox_.clear();
        if (is_stopping_) return false;
        if (!std::exchange(has_cancelled_, false)) return true;
        for (Request *request : open_) {
            if (std::exchange(request->is_cancelled, false)) cancelled_.push_back(request);
        }
    }
    cancel_all();
    return true;
}

void Lane::round() {
    expire();
    survey();
    if (now_ns_ >= later_ns_) {
        unrouted_.insert(unrouted_.end(), later_.begin(), later_.end());
        later_.clear();
    }
    routing_.swap(unrouted_);
    for (Request *request : routing_) {
        try {
            route(request);
        } catch (const std::bad_alloc &) {
            try_later(request);
        }
    }
    routing_.clear();
    for (auto &[address, node] : nodes_) pump(node.get());
    wait_and_handle();
}

uint64_t Lane::next_event_ns() const {
    uint64_t next = topology_due_ns_;
    if (asked_ != nullptr) next = topology_deadline_ns_;
    if (sweep_at_ != 0 || !unrouted_.empty()) return 0;
    if (scanned_ != nullptr) {
        next = std::min({next, scan_deadline_ns_, page_due_ns_});
    } else if (topology_.is_known()) {
        next = std::min(next, scan_due_ns_);
    }
    if (!open_.empty()) next = std::min(next, open_.front()->deadline_ns);
    if (!later_.empty()) next = std::min(next, later_ns_);
    for (const auto &[address, node] : nodes_) {
        const Connection *connection = node->connection.get();
        if (connection != nullptr && !connection->is_ready()) {
            next = std::min(next, connection->deadline_ns());
        }
    }
    return next;
}

void Lane::wait_and_handle() {
    constexpr uint64_t kMillisecond = 1'000'000;
    const uint64_t next = next_event_ns();
    uint64_t wait_ms = next <= now_ns_ ? 0 : (next - now_ns_ + kMillisecond - 1) / kMillisecond;
    epoll_event events[32];
    const int count = epoll_wait(epoll_, events, std::size(events),
                                 static_cast<int>(std::min<uint64_t>(wait_ms, 60'000)));
    now_ns_ = clock_ns();
    for (int i = 0; i < count; ++i) {
        if (events[i].data.ptr == nullptr) {
            uint64_t value = 0;
            while (::read(wake_, &value, sizeof value) < 0 && errno == EINTR) continue;
        } else {
            static_cast<Connection *>(events[i].data.ptr)->handle(events[i].events);
        }
    }
    for (auto &[address, node] : nodes_) clean_up(node.get());
}

// Requests. --------------------------------------------------------------------------------------

void Lane::cancel_all() {
    for (Request *request : cancelled_) {
        // A change that was sent may have its effect: it goes on to its end.
        const bool has_effect = request->flight != nullptr && request->is_change();
        if (!has_effect) finish(request, {QUIRE_STORE_CANCELLED});
    }
    cancelled_.clear();
}

void Lane::try_later(Request *request) {
    if (later_.empty()) later_ns_ = now_ns_ + kRetryNs;
    later_.push_back(request);
}

void Lane::route(Request *request) {
    Node *node = request->target;
    if (node == nullptr) {
        if (!topology_.is_known()) return try_later(request);
        const Address *owner = topology_.owner(request->slot);
        if (owner == nullptr) {
            hurry_topology();
            return fail(request, EAGAIN);
        }
        node = node_at(*owner);
    }
    if (!node->breaker.allows(now_ns_)) return fail(request, node->error_number);
    node->waiting.push_back(request);
    request->waits_at = node;
    request->routed_ns = now_ns_;
}

void Lane::detach(Request *request) {
    if (request->flight != nullptr) request->flight->request = nullptr;
    request->flight = nullptr;
    if (request->waits_at != nullptr) std::erase(request->waits_at->waiting, request);
    request->waits_at = nullptr;
    std::erase(unrouted_, request);
    std::erase(later_, request);
}

void Lane::finish(Request *request, const Outcome &outcome) {
    detach(request);
    request->element.splice(request->element.end(), open_, request->place);
    books_->finish(request, outcome);
}

void Lane::fail(Request *request, int error_number) {
    finish(request, {.code = QUIRE_STORE_FAILED, .native_code = error_number});
}

void Lane::expire() {
    while (!open_.empty() && open_.front()->deadline_ns <= now_ns_) {
        Request *request = open_.front();
        Node *node = request->flight != nullptr ? request->flight->node : request->waits_at;
        // Nodes that name each other do answer: none of them has failed.
        const bool was_in_circles = request->ends_in_circles();
        fail(request, was_in_circles ? ELOOP : ETIMEDOUT);
        {
            std::lock_guard lock(books_->mutex);
            ++books_->counts.timeouts;
        }
        if (node != nullptr && !was_in_circles) note_failure(node, ETIMEDOUT);
    }
    for (auto &[address, node] : nodes_) {
        Connection *connection = node->connection.get();
        if (connection == nullptr || connection->is_ready()) continue;
        if (connection->deadline_ns() <= now_ns_) connection->drop(ETIMEDOUT);
        clean_up(node.get());
    }
}

// Nodes. -----------------------------------------------------------------------------------------

Node *Lane::node_at(const Address &address) {
    if (auto at = nodes_.find(address); at != nodes_.end()) return at->second.get();
    auto node = std::make_unique<Node>(address, options_);
    return nodes_.emplace(address, std::move(node)).first->second.get();
}

bool Lane::may_ask(const Address &address) {
    const size_t most = topology_.nodes().size() + seeds_.size() + kMostStrangers;
    if (nodes_.contains(address) || nodes_.size() < most) return true;
    has_strangers_ = true;  // those that are not used make room
    return false;
}

void Lane::pump(Node *node) {
    if (node->waiting.empty() && !node->wants_topology && !node->wants_scan) return;
    if (node->connection == nullptr) {
        node->connection =
            std::make_unique<Connection>(epoll_, now_ns_ + options_.connect_timeout_ns);
        node->connection->open(node->address, options_, tls_);
        if (node->connection->has_ended()) return clean_up(node);
        std::lock_guard lock(books_->mutex);
        ++books_->counts.connects;
    }
    if (!node->connection->is_ready()) return;
    if (node->wants_topology) {
        command_.clear();
        append_command({"CLUSTER", "SLOTS"}, &command_);
        node->wants_topology = !send_errand(node, Errand::topology, kSlots, command_);
        is_hurried_ = false;
    }
    if (node->wants_scan) {
        command_.clear();
        append_command({"SCAN", cursor_, "MATCH", options_.prefix + "*", "COUNT", "1000"},
                       &command_);
        node->wants_scan = !send_errand(node, Errand::scan, kPage, command_);
    }
    while (!node->waiting.empty() && node->flight_count < kMostFlights &&
           node->connection->queued_bytes() < kMostQueuedBytes) {
        Request *request = node->waiting.front();
        node->waiting.pop_front();
        request->waits_at = nullptr;
        try {
            send(node, request);
        } catch (const std::bad_alloc &) {
            fail(request, ENOMEM);
        }
    }
}

void Lane::send(Node *node, Request *request) {
    command_.clear();
    if (request->asks) append_command({"ASKING"}, &command_);
    const size_t asking_bytes = command_.size();
    append_step(*request);
    const std::string_view whole = command_;
    auto flight = std::make_unique<Flight>(Flight{this, node, Errand::request, request});
    // hiredis expects a reply per call, so two commands are two calls.
    const bool asked = asking_bytes == 0 || node->connection->send(whole.substr(0, asking_bytes),
                                                                   kWord, nullptr, nullptr);
    if (!asked || !node->connection->send(whole.substr(asking_bytes), bounds_of(*request), on_reply,
                                          flight.get())) {
        return fail(request, ENOMEM);
    }
    request->asks = false;
    request->target = nullptr;
    request->flight = flight.release();
    ++node->flight_count;
    books_->written_bytes += command_.size();
}

bool Lane::send_errand(Node *node, Errand errand, const Bounds &bounds, std::string_view command) {
    auto flight = std::make_unique<Flight>(Flight{this, node, errand, nullptr, scan_number_});
    if (!node->connection->send(command, bounds, on_reply, flight.get())) return false;
    static_cast<void>(flight.release());
    ++node->flight_count;
    books_->written_bytes += command.size();
    return true;
}

// An open breaker gives up the connection, also that of a probe, and all that waits for the node.
void Lane::note_failure(Node *node, int error_number) {
    node->error_number = error_number;
    hurry_topology();
    const bool has_opened = node->breaker.failed(now_ns_);
    if (!node->breaker.is_open()) return;
    if (has_opened) {
        std::lock_guard lock(books_->mutex);
        ++books_->counts.breaks;
    }
    if (node->connection != nullptr) node->connection->drop(error_number);
    while (!node->waiting.empty()) fail(node->waiting.front(), error_number);
}

void Lane::clean_up(Node *node) {
    if (node->connection == nullptr || !node->connection->has_ended()) return;
    const std::unique_ptr<Connection> ended = std::move(node->connection);
    const bool was_broken = node->breaker.is_open();
    const bool had_work = std::exchange(node->has_lost_flights, false);
    // It had answered the login, and took nothing of what then was to be sent.
    const bool is_useless = !node->waiting.empty() || asked_ == node || scanned_ == node;
    {
        std::lock_guard lock(books_->mutex);
        ++books_->counts.lost_connections;
    }
    if (asked_ == node)
        lose_topology(node->address.text() + ": " + ended->why(), ended->error_number());
    if (scanned_ == node) end_scan(false);
    if (ended->was_ready()) {
        // Requests that were sent have failed; those that wait go over a new connection.
        hurry_topology();
        if (is_useless || (had_work && !was_broken)) note_failure(node, ended->error_number());
        return;
    }
    note_failure(node, ended->error_number());
    while (!node->waiting.empty()) fail(node->waiting.front(), ended->error_number());
}

}  // namespace quire::valkey
