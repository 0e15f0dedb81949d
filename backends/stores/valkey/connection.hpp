// SPDX-License-Identifier: Apache-2.0
//
// connection: one connection to a node, by hiredis, driven by a lane's epoll.
//
//   connecting -> ready -> ended
//        \__________________^
//
// It is ready once the node has answered the login (AUTH, or PING without a password), so a node
// that is stopped and whose system still accepts connections never is. When it ends, each command
// that has no reply gets its callback with NULL, from within the call that ended it.
//
// Threads: none; a lane's thread.
#pragma once

#include <cerrno>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "valkey/options.hpp"
#include "valkey/reply_guard.hpp"
#include "valkey/secrets.hpp"
#include "valkey/tls.hpp"

struct redisAsyncContext;

namespace quire::valkey {

class Connection {
 public:
    using Callback = void(redisAsyncContext *context, void *reply, void *data);

    Connection(int epoll, uint64_t deadline_ns) : epoll_(epoll), deadline_ns_(deadline_ns) {}
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;
    ~Connection() { drop(ECANCELED); }

    // Begins to connect. If it cannot, the connection has ended.
    void open(const Address &address, const Options &options, const Tls *tls);
    // Takes the events that epoll reported for it.
    void handle(uint32_t events);
    // Ends it now, with this errno.
    void drop(int error_number);
    // False: it has ended, or there is no memory; the callback will not come. NULL: the reply does
    // not matter. A larger reply than `bounds` ends the connection.
    bool send(std::string_view command, const Bounds &bounds, Callback *callback, void *data);

    bool is_ready() const { return is_ready_; }
    bool was_ready() const { return was_ready_; }
    bool has_ended() const { return context_ == nullptr; }
    uint64_t deadline_ns() const { return deadline_ns_; }  // of the login
    uint64_t queued_bytes() const;                         // that the socket has not taken yet
    // Why it ended, or is just ending: callbacks that get NULL may ask.
    int error_number();
    const std::string &why() const { return why_; }  // it ended, for people
    // Texts that messages about this node must not show.
    const Secrets &secrets() const { return secrets_; }

 private:
    void note_certificate();
    void note_error();
    static void on_login(redisAsyncContext *context, void *reply, void *data);
    static void clean_up(void *data);
    template <uint32_t event, bool is_wanted>
    static void want(void *data);
    bool start_tls(const Address &address, const Tls &tls);
    void hook_into_epoll();
    void log_in(const Options &options);
    void note_refusal();
    // Keeps the text as why(), unless there is one already. Without memory it goes without.
    template <typename Text>
    void say(Text text);

    int epoll_;
    uint64_t deadline_ns_;
    ReplyGuard guard_;
    Secrets secrets_;
    redisAsyncContext *context_ = nullptr;
    SSL *ssl_ = nullptr;   // the context's
    uint32_t wanted_ = 0;  // of epoll
    bool is_ready_ = false;
    bool was_ready_ = false;
    int error_number_ = 0;
    std::string why_;
};

// For replies of a word, a number or a header, and for errors.
constexpr Bounds kWord{0, 0, uint64_t{64} << 10};

// Appends a command in RESP.
void append_command(std::initializer_list<std::string_view> words, std::string *out);
void append_count(char kind, uint64_t count, std::string *out);

}  // namespace quire::valkey
