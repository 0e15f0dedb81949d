// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of tier.h.

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "abi/tier_object.hpp"
#include "core/base/checked.hpp"

using namespace quire;
using namespace quire::abi;

namespace {

constexpr uint32_t kAtOnce = 16;  // answers that one call looks at

using Request = TierRequest;

// The options as the plugin reads them: one after another.
Status read_options(const quire_tier_desc &desc, std::vector<quire_store_option> *out) {
    if (desc.option_count == 0) return Status{};
    QUIRE_TRY(need(desc.options, "desc.options is NULL"));
    if (desc.option_stride < sizeof(quire_store_option)) {
        return fail(QUIRE_E_STRUCT, "desc.option_stride is {}: an option has {} bytes",
                    desc.option_stride, sizeof(quire_store_option));
    }
    for (uint32_t i = 0; i < desc.option_count; ++i) {
        quire_store_option one;
        std::memcpy(&one,
                    reinterpret_cast<const char *>(desc.options) + uint64_t{i} * desc.option_stride,
                    sizeof one);
        out->push_back(one);
    }
    return Status{};
}

Status read_most_bytes(quire_tier *tier, quire_error *error) {
    quire_store_info info{};
    info.struct_size = sizeof info;
    QUIRE_TRY(call_store<&quire_store_api::get_info>(tier->plugin.api, error, tier->store, &info));
    tier->max_value_bytes = info.max_value_bytes;
    return Status{};
}

Status open_tier(quire_instance *instance, const quire_tier_desc &desc, quire_tier **out,
                 quire_error *error) {
    auto tier = std::make_unique<quire_tier>();
    tier->instance = instance;
    std::vector<quire_store_option> options;
    QUIRE_TRY(read_options(desc, &options));
    QUIRE_TRY(load_store(instance, desc.store, &tier->plugin, error));
    quire_store_desc asked{};
    asked.struct_size = sizeof asked;
    asked.flags = desc.flags;
    tier->is_read_only = (desc.flags & QUIRE_STORE_OPEN_READ_ONLY) != 0;
    asked.options = options.data();
    asked.option_count = static_cast<uint32_t>(options.size());
    asked.option_stride = sizeof(quire_store_option);
    const quire_store_desc *passed = &asked;
    const quire_store_api &api = tier->plugin.api;
    QUIRE_TRY(call_store<&quire_store_api::open>(api, error, passed, &tier->store));
    if (tier->store == nullptr) return store_lied(api, error, "open returned no store");
    Status read = read_most_bytes(tier.get(), error);
    if (!read.ok()) {
        (void)call_store<&quire_store_api::close_wait>(api, error, tier->store, UINT64_MAX);
        return read;
    }
    ++instance->children;
    *out = tier.release();
    return Status{};
}

// The size of the request's value. Everything else about it is for the store to judge.
Status check_request(const quire_tier &tier, const quire_store_request &request,
                     uint64_t *size_bytes) {
    *size_bytes = 0;
    if (request.piece_count != 0) QUIRE_TRY(need(request.pieces, "request.pieces is NULL"));
    for (uint32_t i = 0; i < request.piece_count; ++i) {
        const quire_store_piece &piece = request.pieces[i];
        if (piece.size_bytes != 0 && piece.address == nullptr)
            return fail(QUIRE_E_ARG, "the address of pieces[{}] is NULL", i);
        if (!checked_add(*size_bytes, piece.size_bytes, size_bytes) ||
            *size_bytes > tier.max_value_bytes) {
            return fail(QUIRE_E_ARG, "a value of more than {} bytes, the most that the store takes",
                        tier.max_value_bytes);
        }
    }
    return Status{};
}

// Copies between the caller's pieces and the request's value.
void copy_pieces(const quire_store_request &request, Request *own, bool is_put) {
    uint8_t *at = own->value.data();
    for (uint32_t i = 0; i < request.piece_count; ++i) {
        const quire_store_piece &piece = request.pieces[i];
        if (piece.size_bytes == 0) continue;
        std::memcpy(is_put ? at : piece.address, is_put ? piece.address : at, piece.size_bytes);
        at += piece.size_bytes;
    }
}

// True if it answers a request whose caller gave up; that one has ended then.
bool end_late(quire_tier *tier, uint64_t cookie) {
    return std::erase_if(tier->late,
                         [&](const auto &request) { return request->cookie == cookie; }) != 0;
}

// Looks at some answers. The one to the request with this cookie and kind sets *found; kind 0: only
// late ones are expected. *count: how many there were.
Status take_some(quire_tier *tier, uint64_t cookie, uint32_t kind, uint32_t *count, bool *found,
                 quire_store_answer *out, quire_error *error) {
    const quire_store_api &api = tier->plugin.api;
    quire_store_answer answers[kAtOnce] = {};
    *count = 0;
    QUIRE_TRY(call_store<&quire_store_api::reap>(api, error, tier->store, answers, kAtOnce,
                                                 uint32_t{sizeof answers[0]}, count));
    if (*count > kAtOnce)
        return store_lied(api, error, "reap gave more answers than were asked for");
    for (uint32_t i = 0; i < *count; ++i) {
        if (answers[i].kind == 0) continue;  // a notice: what find says of now is what counts
        if (answers[i].cookie == cookie && answers[i].kind == kind && !*found &&
            answers[i].outcome <= QUIRE_STORE_CANCELLED) {
            *out = answers[i];
            *found = true;
        } else if (!end_late(tier, answers[i].cookie)) {
            return store_lied(api, error, "reap gave an answer to no request");
        }
    }
    return Status{};
}

// All answers that are there.
Status take_answers(quire_tier *tier, uint64_t cookie, uint32_t kind, bool *found,
                    quire_store_answer *out, quire_error *error) {
    *found = false;
    uint32_t count = kAtOnce;
    while (count == kAtOnce) QUIRE_TRY(take_some(tier, cookie, kind, &count, found, out, error));
    return Status{};
}

// *found: false if the time ran out.
Status await_answer(quire_tier *tier, const quire_store_request &request, bool *found,
                    quire_store_answer *out, uint64_t timeout_ns, quire_error *error) {
    const quire_store_api &api = tier->plugin.api;
    const uint64_t start = os::monotonic_ns();
    for (;;) {
        QUIRE_TRY(take_answers(tier, request.cookie, request.kind, found, out, error));
        uint64_t left = os::time_left(start, timeout_ns);
        if (*found || left == 0) return Status{};
        os::wait_readable(api.descriptor != nullptr ? api.descriptor(tier->store) : -1, left);
    }
}

Status run_request(quire_tier *tier, const quire_store_request &given, quire_store_answer *out,
                   uint64_t timeout_ns, quire_error *error) {
    const quire_store_api &api = tier->plugin.api;
    auto own = std::make_unique<Request>();
    uint64_t size_bytes = 0;
    QUIRE_TRY(check_request(*tier, given, &size_bytes));
    own->value.resize(size_bytes);
    own->cookie = ++tier->last_cookie;
    own->piece = {own->value.data(), size_bytes};
    if (given.kind == QUIRE_STORE_PUT) copy_pieces(given, own.get(), true);
    quire_store_request request = given;
    request.cookie = own->cookie;
    request.pieces = size_bytes != 0 ? &own->piece : nullptr;
    request.piece_count = size_bytes != 0 ? 1 : 0;
    tier->late.reserve(tier->late.size() + 1);  // so that giving up needs no memory
    const quire_store_request *passed = &request;
    uint32_t taken = 0;
    bool found = false;
    // Those that timed out and have ended make room.
    if (!tier->late.empty()) QUIRE_TRY(take_answers(tier, 0, 0, &found, out, error));
    Status submitted = call_store<&quire_store_api::submit>(api, error, tier->store, passed, 1u,
                                                            uint32_t{sizeof request}, &taken);
    if (submitted.ok() && taken > 1)
        submitted = store_lied(api, error, "submit took more requests than there were");
    if (!submitted.ok()) {
        // A store that broke its contract may have it all the same.
        if (submitted.code == QUIRE_E_BACKEND) tier->late.push_back(std::move(own));
        return submitted;
    }
    if (taken == 0) {
        return fail(QUIRE_E_BUSY, "{} requests that timed out are still under way",
                    tier->late.size());
    }
    Status waited = await_answer(tier, request, &found, out, timeout_ns, error);
    if (!found) {
        // The store may still use the value.
        tier->late.push_back(std::move(own));
        if (!waited.ok()) return waited;
        QUIRE_TRY(call_store<&quire_store_api::cancel>(api, error, tier->store, request.cookie));
        return Status{QUIRE_S_TIMEOUT, nullptr, 0, 0};
    }
    bool has_value = given.kind == QUIRE_STORE_GET && out->outcome == QUIRE_STORE_DONE;
    if (has_value) copy_pieces(given, own.get(), false);
    out->cookie = given.cookie;
    return Status{};
}

}  // namespace

extern "C" {

quire_status quire_tier_open(quire_instance *instance, const quire_tier_desc *desc,
                             quire_tier **out, quire_error *error) {
    return guard("tier_open", error, [&](quire_error *sink) -> Status {
        quire_tier_desc full;
        QUIRE_TRY(read(desc, &full));
        QUIRE_TRY(need(instance, "instance is NULL"));
        QUIRE_TRY(not_inherited(instance->process));
        QUIRE_TRY(need(full.store, "desc.store is NULL"));
        QUIRE_TRY(need(out, "out is NULL"));
        return open_tier(instance, full, out, sink);
    });
}

quire_status quire_tier_close_wait(quire_tier *tier, uint64_t timeout_ns, quire_error *error) {
    return guard("tier_close_wait", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(usable(tier));
        {
            std::lock_guard<std::mutex> lock(tier->mutex);
            QUIRE_TRY(not_serving(*tier));
            Status closed = call_store<&quire_store_api::close_wait>(tier->plugin.api, sink,
                                                                     tier->store, timeout_ns);
            if (closed.code != QUIRE_OK) return closed;
        }
        --tier->instance->children;
        delete tier;
        return Status{};
    });
}

quire_status quire_tier_get_info(quire_tier *tier, quire_store_info *info, quire_error *error) {
    return guard("tier_get_info", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(usable(tier));
        QUIRE_TRY(check_output(info));
        quire_store_info full{};
        full.struct_size = sizeof full;
        std::lock_guard<std::mutex> lock(tier->mutex);
        QUIRE_TRY(
            call_store<&quire_store_api::get_info>(tier->plugin.api, sink, tier->store, &full));
        full.place[sizeof full.place - 1] = '\0';
        write(full, info);
        return Status{};
    });
}

quire_status quire_tier_get_stats(quire_tier *tier, quire_store_stats *stats, quire_error *error) {
    return guard("tier_get_stats", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(usable(tier));
        QUIRE_TRY(check_output(stats));
        quire_store_stats full{};
        full.struct_size = sizeof full;
        std::lock_guard<std::mutex> lock(tier->mutex);
        QUIRE_TRY(
            call_store<&quire_store_api::get_stats>(tier->plugin.api, sink, tier->store, &full));
        write(full, stats);
        return Status{};
    });
}

quire_status quire_tier_list(quire_tier *tier, uint64_t *cursor, quire_store_record *records,
                             uint32_t capacity, uint32_t stride, uint32_t *count,
                             quire_error *error) {
    return guard("tier_list", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(usable(tier));
        QUIRE_TRY(need(cursor, "cursor is NULL"));
        QUIRE_TRY(need(count, "count is NULL"));
        QUIRE_TRY(need(records, "records is NULL"));
        if (capacity == 0) return fail(QUIRE_E_ARG, "capacity is 0");
        if (stride < sizeof *records) {
            return fail(QUIRE_E_STRUCT, "stride is {}: a record has {} bytes", stride,
                        sizeof *records);
        }
        std::lock_guard<std::mutex> lock(tier->mutex);
        const quire_store_api &api = tier->plugin.api;
        QUIRE_TRY(call_store<&quire_store_api::list>(api, sink, tier->store, cursor, records,
                                                     capacity, stride, count));
        if (*count <= capacity) return Status{};
        return store_lied(api, sink, "list gave more records than it had room for");
    });
}

quire_status quire_tier_request_wait(quire_tier *tier, const quire_store_request *request,
                                     quire_store_answer *answer, uint64_t timeout_ns,
                                     quire_error *error) {
    return guard("tier_request_wait", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(usable(tier));
        QUIRE_TRY(need(request, "request is NULL"));
        QUIRE_TRY(need(answer, "answer is NULL"));
        std::lock_guard<std::mutex> lock(tier->mutex);
        QUIRE_TRY(not_serving(*tier));
        return run_request(tier, *request, answer, timeout_ns, sink);
    });
}

}  // extern "C"
