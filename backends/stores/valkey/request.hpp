// SPDX-License-Identifier: Apache-2.0
//
// request: what a caller asked for, from submit to reap.
//
//   free -> open -> finished -> free
//
// Threads: the mutex of Books guards the first part. The second belongs to the lane that serves the
// request; the caller's pieces are read and filled by it alone.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "quire/plugin/store.h"

namespace quire::valkey {

struct Flight;
struct Node;

// The state of a request, by the reply that it waits for.
enum class Step {
    begin,    // nothing was sent, or it had no effect
    compare,  // PUT: the key is taken; whose is it?
    replace,  // PUT: it is another label's, or damaged
    unlink    // REMOVE, and GET of a damaged value: it goes
};

struct Request {
    Request() = default;
    Request(const Request &) = delete;
    Request &operator=(const Request &) = delete;

    // More redirects than a cluster whose nodes agree needs.
    static constexpr uint32_t kManyRedirects = 5;
    // A node that sends it on may take so long for that.
    static constexpr uint64_t kBriefNs = 100'000'000;

    quire_store_answer answer{};
    std::vector<quire_store_piece> pieces;
    uint64_t size_bytes = 0;  // of the pieces
    uint64_t ticket = 0;      // grows from submit to submit
    uint64_t deadline_ns = 0;
    bool is_open = false;
    bool is_cancelled = false;  // its lane has not seen so yet
    Request *next = nullptr;    // in a RequestQueue

    Step step = Step::begin;
    uint16_t slot = 0;
    std::string name;          // of the key in the cluster
    Flight *flight = nullptr;  // its command that was sent
    Node *waits_at = nullptr;  // to be sent
    Node *target = nullptr;    // the node that a redirect named
    bool asks = false;         // by an ASK
    uint32_t redirect_count = 0;
    uint64_t routed_ns = 0;         // when it last was given to a node
    quire_store_label displaced{};  // PUT: what it replaces, if `displaces`
    bool displaces = false;
    // Its element, which is in the lane's list while it is open.
    std::list<Request *> element{this};
    std::list<Request *>::iterator place = element.begin();

    const quire_store_label &label() const { return answer.label; }
    uint32_t kind() const { return answer.kind; }
    // The command of its step changes what is there.
    bool is_change() const {
        return step == Step::unlink || (kind() == QUIRE_STORE_PUT && step != Step::compare);
    }
    bool is_sent_in_circles() const { return redirect_count > kManyRedirects; }
    // At its deadline: no node has kept it for long.
    bool ends_in_circles() const {
        const bool is_at_node = flight != nullptr || waits_at != nullptr;
        return is_sent_in_circles() && (!is_at_node || deadline_ns - routed_ns < kBriefNs);
    }
    void begin_again() {
        step = Step::begin;
        asks = displaces = false;
        flight = nullptr;
        waits_at = target = nullptr;
        redirect_count = 0;
    }
};

// First in, first out. It takes no memory of its own.
class RequestQueue {
 public:
    bool is_empty() const { return first_ == nullptr; }
    void push(Request *request) {
        request->next = nullptr;
        (first_ == nullptr ? first_ : last_->next) = request;
        last_ = request;
    }
    // REQUIRES: it is not empty.
    Request *pop() {
        Request *request = first_;
        first_ = request->next;
        return request;
    }

 private:
    Request *first_ = nullptr;
    Request *last_ = nullptr;
};

}  // namespace quire::valkey
