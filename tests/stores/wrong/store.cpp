// SPDX-License-Identifier: Apache-2.0
//
// A store with one mistake, which QUIRE_WRONG_STORE names: the memory store, with something changed
// on the way in or out. The conformance suite must notice each (wrong.py).
//
// Threads: any, as far as the mistake allows.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "quire/plugin/store.h"

// The memory store's own query, compiled under this name.
extern "C" quire_status quire_store_query_of_memory(const quire_host_info *host,
                                                    const quire_store_api **out,
                                                    quire_error *error);

namespace {

// Read anew each time: a test may change it while the store is open.
bool is(const char *name) {
    const char *own = std::getenv("QUIRE_WRONG_STORE");
    return own != nullptr && std::strcmp(own, name) == 0;
}

const quire_store_api *memory = nullptr;
std::atomic<uint64_t> answers_seen{0};

// GETs under way, so that what they filled can be spoilt.
struct Filled {
    uint64_t cookie;
    std::vector<quire_store_piece> pieces;
};
std::mutex mutex;
std::vector<Filled> filled;

quire_store_label spoilt(quire_store_label label) {
    if (is("tenants share")) std::memset(label.name_space, 0, sizeof label.name_space);
    if (is("models share")) std::memset(label.fingerprint, 0, sizeof label.fingerprint);
    if (is("keys are cut")) std::memset(label.key + 8, 0, sizeof label.key - 8);
    if (is("a bit of keys is lost")) label.key[31] &= 0x7F;
    return label;
}

quire_store_request changed(quire_store_request request) {
    request.label = spoilt(request.label);
    if (is("cookies are cut")) request.cookie &= 0xFFFFFFFF;
    if (is("removals are forgotten") && request.kind == QUIRE_STORE_REMOVE) {
        request.kind = QUIRE_STORE_FIND;
    }
    if (is("flags are not looked at")) request.flags = 0;
    return request;
}

void remember(const quire_store_request &request) {
    if (request.kind != QUIRE_STORE_GET || request.pieces == nullptr) return;
    std::lock_guard lock(mutex);
    filled.push_back({request.cookie, {request.pieces, request.pieces + request.piece_count}});
}

quire_status submit(quire_store *store, const quire_store_request *requests, uint32_t count,
                    uint32_t stride, uint32_t *taken, quire_error *error) {
    if (taken == nullptr || requests == nullptr || stride < sizeof *requests) {
        return memory->submit(store, requests, count, stride, taken, error);
    }
    const uint32_t step = is("strides are not looked at") ? sizeof *requests : stride;
    const auto *given = reinterpret_cast<const char *>(requests);
    std::vector<char> bytes(given, given + size_t{count} * step);
    for (uint32_t i = 0; i < count; ++i) {
        quire_store_request one;
        std::memcpy(&one, &bytes[size_t{i} * step], sizeof one);
        one = changed(one);
        remember(one);
        std::memcpy(&bytes[size_t{i} * step], &one, sizeof one);
    }
    auto at = [&](uint32_t i) {
        return reinterpret_cast<const quire_store_request *>(bytes.data() + size_t{i} * step);
    };
    if (!is("a refusal comes too late")) {
        return memory->submit(store, at(0), count, step, taken, error);
    }
    *taken = 0;
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t took = 0;
        if (quire_status status = memory->submit(store, at(i), 1, step, &took, error)) {
            return status;
        }
        *taken += took;
    }
    return QUIRE_OK;
}

void spoil_value(const quire_store_answer &answer) {
    std::lock_guard lock(mutex);
    auto at = std::find_if(filled.begin(), filled.end(),
                           [&](const Filled &one) { return one.cookie == answer.cookie; });
    if (at == filled.end()) return;
    Filled one = *at;
    filled.erase(at);
    if (answer.outcome != QUIRE_STORE_DONE || !is("a byte is flipped")) return;
    for (const quire_store_piece &piece : one.pieces) {
        if (piece.size_bytes != 0) static_cast<unsigned char *>(piece.address)[0] ^= 1;
    }
}

quire_status reap(quire_store *store, quire_store_answer *answers, uint32_t capacity,
                  uint32_t stride, uint32_t *count, quire_error *error) {
    if (is("reap throws")) throw 7;
    if (is("reap returns nonsense")) return 1234;
    if (is("no answer comes")) {
        *count = 0;
        return QUIRE_OK;
    }
    if (is("reap counts too many")) {
        *count = capacity + 1;
        return QUIRE_OK;
    }
    quire_status status = memory->reap(store, answers, capacity, stride, count, error);
    if (status != QUIRE_OK) return status;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *count; ++i) {
        quire_store_answer answer;
        std::memcpy(&answer, reinterpret_cast<char *>(answers) + i * stride, sizeof answer);
        if (answer.kind == QUIRE_STORE_GET) spoil_value(answer);
        if (is("sizes do not matter") && answer.outcome == QUIRE_STORE_SIZE) {
            answer.outcome = QUIRE_STORE_DONE;
        }
        if (is("failures are called done") && answer.outcome == QUIRE_STORE_MISS) {
            answer.outcome = QUIRE_STORE_DONE;
        }
        if (is("answers lose their label")) answer.label = {};
        if (is("answers have foreign cookies")) answer.cookie += 1'000;
        if (is("outcomes are unknown")) answer.outcome = 99;
        if (is("evictions are not told") && answer.kind == 0) continue;
        if (is("an answer is lost") && ++answers_seen % 50 == 0) continue;
        std::memcpy(reinterpret_cast<char *>(answers) + kept * stride, &answer, sizeof answer);
        kept += 1;
        if (is("an answer comes twice") && kept < capacity && ++answers_seen % 50 == 0) {
            std::memcpy(reinterpret_cast<char *>(answers) + kept * stride, &answer, sizeof answer);
            kept += 1;
        }
    }
    *count = kept;
    return QUIRE_OK;
}

int32_t descriptor(quire_store *store) {
    if (is("the descriptor stays silent")) {
        static int pipes[2];
        static const int made = pipe(pipes);
        return made == 0 ? pipes[0] : -1;
    }
    if (is("the descriptor is always readable")) {
        static int pipes[2];
        static const bool made = pipe(pipes) == 0 && write(pipes[1], "x", 1) == 1;
        return made ? pipes[0] : -1;
    }
    return memory->descriptor(store);
}

quire_status find(quire_store *store, const quire_store_label *labels, uint32_t count,
                  uint32_t stride, uint8_t *found, quire_error *error) {
    quire_status status = memory->find(store, labels, count, stride, found, error);
    if (status != QUIRE_OK) return status;
    for (uint32_t i = 0; i < count; ++i) {
        quire_store_label label;
        std::memcpy(&label, reinterpret_cast<const char *>(labels) + i * stride, sizeof label);
        label = spoilt(label);
        status = memory->find(store, &label, 1, sizeof label, found + i, error);
        if (is("find guesses yes")) found[i] = QUIRE_STORE_PRESENT;
        if (is("find guesses no")) found[i] = QUIRE_STORE_ABSENT;
    }
    return status;
}

quire_status list(quire_store *store, uint64_t *cursor, quire_store_record *records,
                  uint32_t capacity, uint32_t stride, uint32_t *count, quire_error *error) {
    if (is("list counts too many")) {
        *count = capacity + 1;
        return QUIRE_OK;
    }
    quire_status status = memory->list(store, cursor, records, capacity, stride, count, error);
    if (status == QUIRE_OK && is("list leaves out the last of a page") && *count == capacity &&
        capacity > 1) {
        *count -= 1;
    }
    if (status == QUIRE_OK && is("list repeats") && *count == capacity && *cursor % 2 == 1) {
        *cursor -= 1;
    }
    return status;
}

quire_status get_stats(quire_store *store, quire_store_stats *stats, quire_error *error) {
    quire_status status = memory->get_stats(store, stats, error);
    if (status != QUIRE_OK || stats->struct_size < sizeof *stats) return status;
    if (is("hits are not counted")) stats->hits = 0;
    if (is("records are miscounted")) stats->records += 1;
    if (is("the room is exceeded")) stats->used_bytes *= 2;
    return status;
}

quire_status open(const quire_store_desc *desc, quire_store **out, quire_error *error) {
    if (is("open throws")) throw 7;
    if (is("open gives nothing")) return QUIRE_OK;
    if (is("open gives no reason")) return QUIRE_E_ARG;
    if (!is("unknown options are ignored") || desc == nullptr) {
        return memory->open(desc, out, error);
    }
    std::vector<quire_store_option> known;
    for (uint32_t i = 0; i < desc->option_count && desc->options != nullptr; ++i) {
        if (std::strcmp(desc->options[i].name, "capacity") == 0) known.push_back(desc->options[i]);
    }
    quire_store_desc copy = *desc;
    copy.options = known.data();
    copy.option_count = static_cast<uint32_t>(known.size());
    return memory->open(&copy, out, error);
}

quire_status get_info(quire_store *store, quire_store_info *info, quire_error *error) {
    quire_status status = memory->get_info(store, info, error);
    if (is("get_info fails")) return QUIRE_E_OS;
    if (status == QUIRE_OK && is("persistence is a claim") && info->struct_size == sizeof *info) {
        info->flags |= QUIRE_STORE_PERSISTENT;
    }
    return status;
}

quire_status close_wait(quire_store *store, uint64_t timeout_ns, quire_error *error) {
    if (is("stores are not closed") && store != nullptr) return QUIRE_OK;
    if (is("closing takes for ever")) return QUIRE_S_TIMEOUT;
    return memory->close_wait(store, timeout_ns, error);
}

}  // namespace

extern "C" quire_status quire_store_query_v0(const quire_host_info *host,
                                             const quire_store_api **out, quire_error *error) {
    static quire_store_api api;
    if (is("query throws")) throw 7;
    if (is("query refuses")) return QUIRE_E_INCOMPATIBLE;
    if (is("there is no table")) return QUIRE_OK;
    if (quire_status status = quire_store_query_of_memory(host, out, error)) return status;
    memory = *out;
    api = *memory;
    api.name = "wrong";
    api.open = open;
    api.close_wait = close_wait;
    api.get_info = get_info;
    api.get_stats = get_stats;
    api.submit = submit;
    api.reap = reap;
    api.descriptor = descriptor;
    api.find = find;
    api.list = list;
    if (is("the table is short")) api.struct_size = 64;
    if (is("a function is missing")) api.submit = nullptr;
    if (is("the version is another")) api.abi_major = 9;
    if (is("the name is wrong")) api.name = "../wrong";
    if (is("nothing can be listed")) api.list = nullptr;
    if (is("there is no descriptor")) api.descriptor = nullptr;
    *out = &api;
    return QUIRE_OK;
}
