// SPDX-License-Identifier: Apache-2.0

#include "valkey/reply_guard.hpp"

#include <hiredis.h>

#include <charconv>
#include <string_view>

namespace quire::valkey {

namespace {

// Statuses, errors, numbers and sizes are lines. A node's errors have some hundred bytes.
constexpr size_t kMostLine = size_t{64} << 10;
// A node that has too many clients says so without being asked.
constexpr Bounds kUnasked{0, 0, kMostLine};

ReplyGuard &guard_of(const redisReadTask *task) {
    return *static_cast<ReplyGuard *>(task->privdata);
}

bool is_admitted(const redisReadTask *task, uint64_t element_count, uint64_t byte_count) {
    return guard_of(task).admits(*task, element_count, byte_count);
}

void *make_string(const redisReadTask *task, char *text, size_t size) {
    return is_admitted(task, 0, size) ? guard_of(task).makers().createString(task, text, size)
                                      : nullptr;
}

void *make_array(const redisReadTask *task, size_t count) {
    return is_admitted(task, count, 0) ? guard_of(task).makers().createArray(task, count) : nullptr;
}

void *make_integer(const redisReadTask *task, long long value) {
    return is_admitted(task, 0, 0) ? guard_of(task).makers().createInteger(task, value) : nullptr;
}

void *make_nil(const redisReadTask *task) {
    return is_admitted(task, 0, 0) ? guard_of(task).makers().createNil(task) : nullptr;
}

// These are of RESP3, which no connection asks for: they are not admitted.
void *make_double(const redisReadTask *task, double, char *, size_t) {
    is_admitted(task, 0, 0);
    return nullptr;
}

void *make_bool(const redisReadTask *task, int) {
    is_admitted(task, 0, 0);
    return nullptr;
}

redisReplyObjectFunctions g_guarded = {make_string, make_array, make_integer,   make_double,
                                       make_nil,    make_bool,  freeReplyObject};

bool is_of_resp2(int type) {
    return type == REDIS_REPLY_STRING || type == REDIS_REPLY_ARRAY || type == REDIS_REPLY_INTEGER ||
           type == REDIS_REPLY_NIL || type == REDIS_REPLY_STATUS || type == REDIS_REPLY_ERROR;
}

uint32_t depth_of(const redisReadTask &task) {
    uint32_t depth = 0;
    for (const redisReadTask *at = &task; at != nullptr; at = at->parent) ++depth;
    return depth;
}

}  // namespace

void ReplyGuard::attach(redisReader *reader) {
    makers_ = reader->fn;
    reader->fn = &g_guarded;
    reader->privdata = this;
}

bool ReplyGuard::refuse(const char *why) {
    if (refusal_ == nullptr) refusal_ = why;
    return false;
}

bool ReplyGuard::admits(const redisReadTask &task, uint64_t element_count, uint64_t byte_count) {
    if (!is_of_resp2(task.type)) return refuse("the node answered in another protocol than RESP2");
    if (task.parent == nullptr) {
        if (expected_.empty() && task.type != REDIS_REPLY_ERROR) {
            return refuse("the node answered without being asked");
        }
        left_ = expected_.empty() ? kUnasked : expected_.front();
        if (!expected_.empty()) expected_.pop_front();
    }
    if (element_count != 0 && depth_of(task) > left_.depth) {
        return refuse("arrays of a reply are nested deeper than its command allows");
    }
    if (element_count > left_.elements) {
        return refuse("a reply has more elements than its command allows");
    }
    if (byte_count > left_.bytes) return refuse("a reply is longer than its command allows");
    left_.elements -= element_count;
    left_.bytes -= byte_count;
    return true;
}

bool ReplyGuard::admits_rest(const redisReader &reader) {
    if (reader.err != 0 || reader.ridx < 0 || reader.len == reader.pos) return true;
    const redisReadTask &task = *reader.task[reader.ridx];
    const std::string_view rest(reader.buf + reader.pos, reader.len - reader.pos);
    const size_t line_bytes = rest.substr(0, kMostLine).find("\r\n");
    if (line_bytes == std::string_view::npos) {
        return rest.size() < kMostLine || refuse("a line of a reply does not end");
    }
    if (task.type != REDIS_REPLY_STRING) return true;
    uint64_t size = 0;
    if (std::from_chars(rest.data(), rest.data() + line_bytes, size).ec != std::errc()) {
        return refuse("a reply has no size");
    }
    const Bounds &next = expected_.empty() ? kUnasked : expected_.front();
    const uint64_t most = task.parent == nullptr ? next.bytes : left_.bytes;
    return size <= most || refuse("a reply is longer than its command allows");
}

}  // namespace quire::valkey
