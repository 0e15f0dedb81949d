// SPDX-License-Identifier: Apache-2.0

#include <hiredis.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#include "valkey/lane.hpp"
#include "valkey/record.hpp"

namespace quire::valkey {

namespace {

// Beside a value: another process may have put a larger one, which is read to say so.
constexpr uint64_t kReplyRoom = uint64_t{4} << 20;

std::string_view text_of(const redisReply &reply) {
    return reply.str == nullptr ? std::string_view() : std::string_view(reply.str, reply.len);
}

// The number of an error that no other request or node would help against.
int error_number_of(std::string_view text) {
    constexpr struct {
        std::string_view begin;
        int error_number;
    } kKnown[] = {{"NOAUTH", EACCES},      {"WRONGPASS", EACCES},  {"NOPERM", EACCES},
                  {"CLUSTERDOWN", EAGAIN}, {"MASTERDOWN", EAGAIN}, {"LOADING", EAGAIN},
                  {"BUSY", EBUSY},         {"READONLY", EROFS},    {"MISCONF", EIO},
                  {"OOM", ENOMEM},         {"NOREPLICAS", EAGAIN}};
    for (const auto &[begin, error_number] : kKnown) {
        if (text.starts_with(begin)) return error_number;
    }
    return EPROTO;
}

void fill_pieces(const std::vector<quire_store_piece> &pieces, std::string_view value) {
    for (const quire_store_piece &piece : pieces) {
        if (piece.size_bytes == 0) continue;
        std::memcpy(piece.address, value.data(), piece.size_bytes);
        value.remove_prefix(piece.size_bytes);
    }
}

}  // namespace

// Sending. ---------------------------------------------------------------------------------------

void Lane::append_step(const Request &request) {
    const bool is_put = request.kind() == QUIRE_STORE_PUT;
    if (request.step == Step::unlink) return append_command({"UNLINK", request.name}, &command_);
    if (is_put && request.step != Step::compare) {
        const bool is_new = request.step == Step::begin;
        const bool has_end = options_.ttl_ms != 0;
        append_count('*', 3 + (is_new ? 1 : 0) + (has_end ? 2 : 0), &command_);
        command_ += "$3\r\nSET\r\n";
        append_count('$', request.name.size(), &command_);
        command_ += request.name + "\r\n";
        append_count('$', kHeaderBytes + request.size_bytes, &command_);
        append_record(request.label(), request.pieces, request.size_bytes, &command_);
        command_ += "\r\n";
        if (is_new) command_ += "$2\r\nNX\r\n";
        if (!has_end) return;
        const std::string ttl = std::to_string(options_.ttl_ms);
        command_ += "$2\r\nPX\r\n";
        append_count('$', ttl.size(), &command_);
        command_ += ttl + "\r\n";
        return;
    }
    if (request.kind() == QUIRE_STORE_GET) return append_command({"GET", request.name}, &command_);
    append_command({"GETRANGE", request.name, "0", std::to_string(kHeaderBytes - 1)}, &command_);
}

Bounds Lane::bounds_of(const Request &request) const {
    const bool wants_value = request.kind() == QUIRE_STORE_GET && request.step == Step::begin;
    return wants_value ? Bounds{0, 0, options_.max_value_bytes + kReplyRoom} : kWord;
}

// Replies. ---------------------------------------------------------------------------------------

void Lane::on_reply(redisAsyncContext *, void *reply, void *data) {
    const std::unique_ptr<Flight> flight(static_cast<Flight *>(data));
    // Nothing may unwind through hiredis.
    try {
        flight->lane->hear_flight(*flight, static_cast<const redisReply *>(reply));
    } catch (const std::bad_alloc &) {
        // The request ends at its deadline.
    }
}

void Lane::hear_flight(const Flight &flight, const redisReply *reply) {
    Node *node = flight.node;
    Request *request = flight.request;
    --node->flight_count;
    if (request != nullptr) request->flight = nullptr;
    if (reply == nullptr) {
        node->has_lost_flights = true;
        if (request != nullptr) fail(request, node->connection->error_number());
        return;
    }
    node->breaker.succeeded();
    books_->read_bytes += reply->len;
    if (flight.errand == Errand::topology) return hear_topology(node, *reply);
    if (flight.errand == Errand::scan) {
        if (scanned_ == node && flight.scan == scan_number_) hear_scan(*reply);
        return;
    }
    if (request == nullptr) return;
    if (reply->type == REDIS_REPLY_ERROR) return hear_error(request, node, text_of(*reply));
    hear(request, *reply);
}

void Lane::hear(Request *request, const redisReply &reply) {
    const uint32_t kind = request->kind();
    const bool is_text = reply.type == REDIS_REPLY_STRING;
    if (request->step == Step::unlink) {
        if (reply.type != REDIS_REPLY_INTEGER) return fail(request, EPROTO);
        if (kind == QUIRE_STORE_GET) return finish(request, {QUIRE_STORE_DAMAGED});
        return finish(request, {.code = QUIRE_STORE_DONE, .is_known = reply.integer != 0});
    }
    if (kind == QUIRE_STORE_PUT && request->step != Step::compare) {
        const bool is_taken = reply.type == REDIS_REPLY_NIL && request->step == Step::begin;
        if (is_taken) return go_on(request, Step::compare);
        const bool is_stored = reply.type == REDIS_REPLY_STATUS && text_of(reply) == "OK";
        if (!is_stored) return fail(request, EPROTO);
        return finish(request, {.code = QUIRE_STORE_DONE,
                                .size_bytes = request->size_bytes,
                                .found_label = request->displaced,
                                .has_found = request->displaces});
    }
    if (kind == QUIRE_STORE_GET && reply.type == REDIS_REPLY_NIL) {
        return finish(request, {QUIRE_STORE_MISS});
    }
    if (!is_text) return fail(request, EPROTO);
    if (kind == QUIRE_STORE_GET) return hear_value(request, text_of(reply));
    hear_header(request, text_of(reply));
}

void Lane::hear_value(Request *request, std::string_view record) {
    Header header;
    if (!read_header(record, &header)) return hear_damage(request);
    const quire_store_label &label = request->label();
    const bool is_same_key = std::memcmp(header.label.key, label.key, sizeof label.key) == 0;
    if (is_same_key && !are_equal(header.label, label)) {
        return finish(request, {.code = QUIRE_STORE_FOREIGN,
                                .size_bytes = header.size_bytes,
                                .found_label = header.label});
    }
    if (!is_same_key || !is_right(record)) return hear_damage(request);
    if (header.size_bytes != request->size_bytes) {
        return finish(request, {QUIRE_STORE_SIZE, header.size_bytes});
    }
    fill_pieces(request->pieces, record.substr(kHeaderBytes));
    finish(request, {QUIRE_STORE_DONE, header.size_bytes});
}

// The key holds no value of ours: it is removed, so that no one finds it again.
void Lane::hear_damage(Request *request) {
    if (options_.is_read_only) return finish(request, {QUIRE_STORE_DAMAGED});
    go_on(request, Step::unlink);
}

// The first bytes of what is under the key; none if nothing is. For FIND, REMOVE and PUT.
void Lane::hear_header(Request *request, std::string_view bytes) {
    Header header{};
    const bool is_right = read_header(bytes, &header);
    const bool is_own = is_right && are_equal(header.label, request->label());
    switch (request->kind()) {
        case QUIRE_STORE_FIND:
            return finish(request,
                          {is_own ? QUIRE_STORE_DONE : QUIRE_STORE_MISS, header.size_bytes});
        case QUIRE_STORE_REMOVE: {
            const bool is_there = !bytes.empty();
            const bool stays = !is_there || (is_right && !is_own);
            return stays ? finish(request, {QUIRE_STORE_DONE}) : go_on(request, Step::unlink);
        }
        default:
            if (!is_own) {
                request->displaced = header.label;
                request->displaces = is_right;
                return go_on(request, Step::replace);
            }
            finish(request,
                   {.code = QUIRE_STORE_DONE, .size_bytes = header.size_bytes, .is_known = true});
    }
}

void Lane::go_on(Request *request, Step step) {
    request->step = step;
    unrouted_.push_back(request);
}

void Lane::hear_error(Request *request, Node *node, std::string_view text) {
    if (text.starts_with("MOVED ") || text.starts_with("ASK ")) {
        return redirect(request, node, text);
    }
    // Half of a slot has moved.
    if (text.starts_with("TRYAGAIN")) return try_later(request);
    if (text.starts_with("WRONGTYPE") && !request->is_change()) {
        switch (request->kind()) {
            case QUIRE_STORE_GET:
                return hear_damage(request);
            case QUIRE_STORE_FIND:
                return finish(request, {QUIRE_STORE_MISS});
            default:
                return go_on(request,
                             request->kind() == QUIRE_STORE_PUT ? Step::replace : Step::unlink);
        }
    }
    const int error_number = error_number_of(text);
    if (error_number == EAGAIN || error_number == EROFS) hurry_topology();
    // The value that it read is damaged, whether it may be removed or not.
    const bool is_damaged = request->kind() == QUIRE_STORE_GET && request->step == Step::unlink;
    if (is_damaged) return finish(request, {QUIRE_STORE_DAMAGED});
    const bool is_full = error_number == ENOMEM && request->kind() == QUIRE_STORE_PUT;
    if (is_full) return finish(request, {QUIRE_STORE_FULL, request->size_bytes});
    fail(request, error_number);
}

void Lane::redirect(Request *request, Node *node, std::string_view text) {
    Redirect where;
    if (!read_redirect(text, &where) || where.slot != request->slot) return fail(request, EPROTO);
    ++request->redirect_count;
    {
        std::lock_guard lock(books_->mutex);
        ++books_->counts.redirects;
    }
    if (where.address.host.empty()) where.address.host = node->address.host;
    if (!where.is_ask) hurry_topology();
    if (!is_numeric(where.address.host)) {
        const Address *address = topology_.address_of(where.address);
        if (address == nullptr) {
            hurry_topology();
            return try_later(request);
        }
        where.address = *address;
    }
    if (where.is_ask) {
        if (!may_ask(where.address)) return try_later(request);
        request->target = node_at(where.address);
        request->asks = true;
    } else if (!topology_.move(where.slot, where.address)) {
        return try_later(request);
    }
    // While a slot changes hands two nodes may name each other, until one hears of it.
    if (request->is_sent_in_circles()) return try_later(request);
    unrouted_.push_back(request);
}

}  // namespace quire::valkey
