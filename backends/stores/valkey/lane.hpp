// SPDX-License-Identifier: Apache-2.0
//
// lane: a thread that serves requests over connections of its own, one to each node.
//
// A round of its loop: take new requests and cancellations; find each request's node; send what
// fits; end requests at their deadlines; wait for the sockets; handle what came. Callbacks of
// hiredis only answer requests or put them back to be routed, so a connection never ends under a
// function that uses it, except in its own callbacks.
//
// A request of which a command was sent may end before the reply: its Flight then has no request,
// and the reply is dropped. hiredis copies commands and replies, so the caller's pieces are never
// touched after the answer.
//
// lane.cpp     the loop, routing, sending, deadlines, the ends of connections
// talk.cpp     which commands a request sends, and what it makes of the replies
// survey.cpp   the topology, and the scans for the index
//
// Threads: all is the lane's thread's, except submit(), look_for_cancelled(), wake() and stop().
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "valkey/books.hpp"
#include "valkey/breaker.hpp"
#include "valkey/connection.hpp"
#include "valkey/topology.hpp"

struct redisReply;

namespace quire::valkey {

class Lane;

enum class Errand { request, topology, scan };

// A command that was sent, until its reply.
struct Flight {
    Lane *lane;
    Node *node;
    Errand errand;
    Request *request = nullptr;
    uint32_t scan = 0;  // its number
};

struct Node {
    Node(Address where, const Options &options)
        : address(std::move(where)), breaker(options.failure_count, options.cooldown_ns) {}
    Address address;
    Breaker breaker;
    std::unique_ptr<Connection> connection;
    std::deque<Request *> waiting;  // to be sent
    bool wants_topology = false;    // CLUSTER SLOTS is to be sent
    bool wants_scan = false;        // SCAN is to be sent
    uint32_t flight_count = 0;
    bool has_lost_flights = false;  // the connection ended under them
    int error_number = 0;           // of the last failure
};

class Lane {
 public:
    Lane(const Options &options, const std::vector<Address> &seeds, const Tls *tls, Books *books,
         bool is_first);
    Lane(const Lane &) = delete;
    Lane &operator=(const Lane &) = delete;
    ~Lane();

    // 0 or a negative errno.
    int start();
    // The first two: REQUIRES: the mutex of Books is held.
    void submit(Request *request) { inbox_.push_back(request); }
    void look_for_cancelled() { has_cancelled_ = true; }
    void wake();
    // Ends the thread. REQUIRES: no request is open.
    void stop();

 private:
    void run();
    void round();
    bool take_inbox();
    void wait_and_handle();
    uint64_t next_event_ns() const;

    // Requests.
    void cancel_all();
    void route(Request *request);
    void try_later(Request *request);
    void finish(Request *request, const Outcome &outcome);
    void fail(Request *request, int error_number);
    void detach(Request *request);
    void expire();

    // Nodes.
    Node *node_at(const Address &address);
    bool may_ask(const Address &address);
    void pump(Node *node);
    void send(Node *node, Request *request);
    bool send_errand(Node *node, Errand errand, const Bounds &bounds, std::string_view command);
    void note_failure(Node *node, int error_number);
    void clean_up(Node *node);

    // talk.cpp
    static void on_reply(redisAsyncContext *context, void *reply, void *data);
    void hear_flight(const Flight &flight, const redisReply *reply);
    void append_step(const Request &request);
    Bounds bounds_of(const Request &request) const;
    void hear(Request *request, const redisReply &reply);
    void hear_error(Request *request, Node *node, std::string_view text);
    void redirect(Request *request, Node *node, std::string_view text);
    void hear_value(Request *request, std::string_view record);
    void hear_header(Request *request, std::string_view bytes);
    void hear_damage(Request *request);
    void go_on(Request *request, Step step);

    // survey.cpp
    void survey();
    void begin_topology();
    void hear_topology(Node *node, const redisReply &reply);
    void lose_topology(const std::string &why, int error_number);
    void hurry_topology();
    void drop_strangers();
    void begin_scan();
    void scan_next();
    void ask_for_page();
    void hear_scan(const redisReply &reply);
    void end_scan(bool is_whole);
    void sweep();
    void report_nodes();

    const Options &options_;
    const std::vector<Address> &seeds_;
    const Tls *tls_;
    Books *books_;
    const bool is_first_;  // reports to open(), and scans
    int epoll_ = -1;
    int wake_ = -1;  // an eventfd
    std::thread thread_;

    // Guarded by the mutex of Books.
    std::vector<Request *> inbox_;
    bool has_cancelled_ = false;
    bool is_stopping_ = false;

    uint64_t now_ns_ = 0;
    std::map<Address, std::unique_ptr<Node>> nodes_;
    Topology topology_;
    std::list<Request *> open_;  // by deadline
    // Each with room for all requests.
    std::vector<Request *> cancelled_;
    std::vector<Request *> unrouted_;
    std::vector<Request *> routing_;
    std::vector<Request *> later_;  // to be routed at later_ns_
    uint64_t later_ns_ = 0;
    std::string command_;

    // The topology that is asked for: of `asked_`, until the deadline.
    uint64_t topology_due_ns_ = 0;
    uint64_t topology_deadline_ns_ = 0;
    uint64_t topology_heard_ns_ = 0;
    bool is_hurried_ = false;     // since CLUSTER SLOTS was sent
    bool has_strangers_ = false;  // nodes may be there that left the cluster
    Node *asked_ = nullptr;
    uint32_t candidate_ = 0;
    uint32_t topology_failures_ = 0;  // in a row

    // The scan under way: of `scanned_`, then of those that are left.
    uint64_t scan_due_ns_ = 0;
    uint64_t scan_deadline_ns_ = 0;
    bool is_scanning_ = false;
    uint32_t scan_number_ = 0;
    Node *scanned_ = nullptr;
    std::vector<Address> left_to_scan_;
    std::string cursor_;
    uint64_t page_due_ns_ = 0;  // of the next page; UINT64_MAX: it was asked for
    uint32_t pages_left_ = 0;   // of the node that is scanned
    uint64_t sweep_at_ = 0;
};

}  // namespace quire::valkey
