// SPDX-License-Identifier: Apache-2.0

#include "valkey/connection.hpp"

#include <async.h>
#include <hiredis.h>
#include <hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>

#include <cstring>
#include <new>
#include <utility>

namespace quire::valkey {

namespace {

// hiredis frees a larger empty buffer, and would do so after each value.
constexpr size_t kKeptBuffer = size_t{4} << 20;

int error_number_of(const redisAsyncContext &context) {
    switch (context.err) {
        case REDIS_ERR_EOF:
            return ECONNRESET;
        case REDIS_ERR_TIMEOUT:
            return ETIMEDOUT;
        case REDIS_ERR_OOM:
            return ENOMEM;
        case REDIS_ERR_IO:
            return errno != 0 && errno != EAGAIN ? errno : ECONNRESET;
        default:
            return EPROTO;
    }
}

}  // namespace

void append_count(char kind, uint64_t count, std::string *out) {
    *out += kind;
    *out += std::to_string(count);
    *out += "\r\n";
}

void append_command(std::initializer_list<std::string_view> words, std::string *out) {
    append_count('*', words.size(), out);
    for (std::string_view word : words) {
        append_count('$', word.size(), out);
        *out += word;
        *out += "\r\n";
    }
}

template <typename Text>
void Connection::say(Text text) {
    try {
        if (why_.empty()) why_ = text();
    } catch (const std::bad_alloc &) {
    }
}

void Connection::open(const Address &address, const Options &options, const Tls *tls) {
    redisOptions wanted{};
    REDIS_OPTIONS_SET_TCP(&wanted, address.host.c_str(), address.port);
    context_ = redisAsyncConnectWithOptions(&wanted);
    if (context_ == nullptr) {
        error_number_ = ENOMEM;
        return;
    }
    if (context_->err != 0) {
        note_error();
        return drop(error_number_);
    }
    context_->c.reader->maxbuf = kKeptBuffer;
    guard_.attach(context_->c.reader);
    redisEnableKeepAlive(&context_->c);
    hook_into_epoll();
    if (tls != nullptr && !start_tls(address, *tls)) return drop(ENOMEM);
    log_in(options);
}

void Connection::hook_into_epoll() {
    epoll_event event{};
    event.data.ptr = this;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, context_->c.fd, &event) != 0) return drop(errno);
    context_->ev.data = this;
    context_->ev.addRead = want<EPOLLIN, true>;
    context_->ev.delRead = want<EPOLLIN, false>;
    context_->ev.addWrite = want<EPOLLOUT, true>;
    context_->ev.delWrite = want<EPOLLOUT, false>;
    context_->ev.cleanup = clean_up;
}

template <uint32_t event, bool is_wanted>
void Connection::want(void *data) {
    auto *self = static_cast<Connection *>(data);
    const uint32_t wanted = is_wanted ? self->wanted_ | event : self->wanted_ & ~event;
    if (wanted == self->wanted_) return;
    self->wanted_ = wanted;
    epoll_event changed{};
    changed.events = wanted;
    changed.data.ptr = self;
    epoll_ctl(self->epoll_, EPOLL_CTL_MOD, self->context_->c.fd, &changed);
}

bool Connection::start_tls(const Address &address, const Tls &tls) {
    if (context_ == nullptr) return true;
    ERR_clear_error();
    ssl_ = tls.make(address.host);
    if (ssl_ == nullptr) return false;
    if (redisInitiateSSL(&context_->c, ssl_) == REDIS_OK) return true;
    note_certificate();  // a node that is near may have shown it already
    if (context_->c.errstr[0] != '\0') say([this] { return context_->c.errstr; });
    SSL_free(std::exchange(ssl_, nullptr));
    return false;
}

void Connection::log_in(const Options &options) {
    if (context_ == nullptr) return;
    const std::string password = current_password(options);
    secrets_.add(password);
    secrets_.add(options.password);
    secrets_.add(options.username);
    std::string command;
    if (password.empty()) {
        append_command({"PING"}, &command);
    } else if (options.username.empty()) {
        append_command({"AUTH", password}, &command);
    } else {
        append_command({"AUTH", options.username, password}, &command);
    }
    if (!send(command, kWord, on_login, this)) drop(ENOMEM);
}

void Connection::on_login(redisAsyncContext *, void *reply, void *data) {
    auto *self = static_cast<Connection *>(data);
    const auto *answer = static_cast<const redisReply *>(reply);
    if (answer == nullptr) return;
    if (answer->type == REDIS_REPLY_ERROR) {
        self->say([&] { return self->secrets_.hidden({answer->str, answer->len}); });
        return self->drop(EACCES);
    }
    if (answer->type != REDIS_REPLY_STATUS) {
        self->say([] { return "the node does not answer the login"; });
        return self->drop(EPROTO);
    }
    self->is_ready_ = self->was_ready_ = true;
}

// Why the node's certificate is refused, unless something else is known to be wrong.
void Connection::note_certificate() {
    if (ssl_ == nullptr || SSL_get_verify_result(ssl_) == X509_V_OK) return;
    say([this] {
        return std::string("the node's certificate is refused: ") +
               X509_verify_cert_error_string(SSL_get_verify_result(ssl_));
    });
}

void Connection::note_error() {
    if (error_number_ != 0) return;  // we ended it
    if (guard_.refusal() != nullptr) return note_refusal();
    error_number_ = error_number_of(*context_);
    note_certificate();
    if (!why_.empty()) return;
    const char *text = context_->errstr;
    const bool is_of_tls = ssl_ != nullptr && context_->err == REDIS_ERR_IO;
    if (is_of_tls) text = ERR_reason_error_string(ERR_peek_last_error());
    if (is_of_tls && text == nullptr) text = "the node ended the encrypted connection";
    // hiredis also gives an error here that a node sends without being asked.
    const bool is_said = text != nullptr && *text != '\0';
    say([&] { return is_said ? secrets_.hidden(text) : std::strerror(error_number_); });
}

int Connection::error_number() {
    if (context_ != nullptr && context_->err != 0) note_error();
    return error_number_;
}

// hiredis knows no reason but memory why an object is not made.
void Connection::note_refusal() {
    error_number_ = EPROTO;
    say([this] { return guard_.refusal(); });
}

void Connection::clean_up(void *data) {
    auto *self = static_cast<Connection *>(data);
    self->note_error();
    epoll_ctl(self->epoll_, EPOLL_CTL_DEL, self->context_->c.fd, nullptr);
    self->context_ = nullptr;
    self->ssl_ = nullptr;
    self->is_ready_ = false;
}

void Connection::handle(uint32_t events) {
    // The thread's other connections leave errors, which SSL_get_error() would take for this one's.
    if (ssl_ != nullptr) ERR_clear_error();
    if (context_ != nullptr && (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) {
        redisAsyncHandleRead(context_);
    }
    if (context_ != nullptr && (events & EPOLLOUT) != 0) redisAsyncHandleWrite(context_);
    if (context_ == nullptr || guard_.admits_rest(*context_->c.reader)) return;
    note_refusal();
    drop(EPROTO);
}

void Connection::drop(int error_number) {
    if (context_ == nullptr) return;
    if (error_number_ == 0) error_number_ = error_number;
    note_certificate();  // a command can be refused because the handshake failed
    say([error_number] { return std::strerror(error_number); });
    is_ready_ = false;
    const bool is_hooked = context_->ev.cleanup != nullptr;
    // Calls clean_up; if this is within a callback, hiredis does so after it.
    redisAsyncFree(context_);
    if (!is_hooked) context_ = nullptr;
}

bool Connection::send(std::string_view command, const Bounds &bounds, Callback *callback,
                      void *data) {
    if (context_ == nullptr) return false;
    guard_.expect(bounds);
    const int result =
        redisAsyncFormattedCommand(context_, callback, data, command.data(), command.size());
    if (result != REDIS_OK) guard_.expect_less();
    return result == REDIS_OK;
}

uint64_t Connection::queued_bytes() const {
    return context_ == nullptr ? 0 : sdslen(context_->c.obuf);
}

}  // namespace quire::valkey
