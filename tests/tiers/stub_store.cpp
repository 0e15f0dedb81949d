// SPDX-License-Identifier: Apache-2.0
//
// The stub store: see stub_store.hpp.

#include "tests/tiers/stub_store.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "quire/plugin/store.h"
#include "tests/fuzz/sealed.hpp"

// The memory store's own query, compiled under this name.
extern "C" quire_status quire_store_query_of_memory(const quire_host_info *host,
                                                    const quire_store_api **out,
                                                    quire_error *error);

namespace {

quire::test::StubControl controls[quire::test::kStubs];
const quire_store_api *memory = nullptr;

std::mutex mutex;

// A GET under way.
struct Asked {
    quire_store_piece piece;
    uint32_t number;  // of those before it
};

// An open store.
struct Stub {
    quire::test::StubControl *control = nullptr;
    std::map<uint64_t, Asked> asked;
    std::map<uint64_t, uint32_t> sought;  // FINDs under way, with the number of those before each
    std::vector<quire_store_answer> held;
    std::vector<uint8_t> first_value;
};

std::map<quire_store *, Stub> stubs;

Stub &stub_of(quire_store *store) {
    std::lock_guard<std::mutex> lock(mutex);
    return stubs[store];
}

quire_status submit(quire_store *store, const quire_store_request *requests, uint32_t count,
                    uint32_t stride, uint32_t *taken, quire_error *error) {
    Stub &stub = stub_of(store);
    quire::test::StubControl &control = *stub.control;
    if (control.takes_none) {
        *taken = 0;
        return QUIRE_OK;
    }
    quire_status status = memory->submit(store, requests, count, stride, taken, error);
    std::lock_guard<std::mutex> lock(mutex);
    for (uint32_t i = 0; status == QUIRE_OK && i < *taken; ++i) {
        const auto &r = *reinterpret_cast<const quire_store_request *>(
            reinterpret_cast<const char *>(requests) + uint64_t{i} * stride);
        if (r.kind == QUIRE_STORE_GET) {
            stub.asked[r.cookie] = {r.pieces[0], static_cast<uint32_t>(control.gets++)};
        }
        if (r.kind == QUIRE_STORE_FIND)
            stub.sought[r.cookie] = static_cast<uint32_t>(control.finds++);
        if (r.kind == QUIRE_STORE_PUT && stub.first_value.empty()) {
            const auto *at = static_cast<const uint8_t *>(r.pieces[0].address);
            stub.first_value.assign(at, at + r.pieces[0].size_bytes);
        }
    }
    if (control.overcounts) *taken = count + 1;
    return status;
}

// What no accident does: the checksum is right.
void tamper(quire::test::StubControl &control, uint8_t *bytes, uint64_t size_bytes) {
    std::vector<uint8_t> value(bytes, bytes + size_bytes);
    uint32_t word = 0;
    std::memcpy(&word, &value[control.tampers_at], sizeof word);
    control.tampered = word;
    word = control.tampers_to;
    std::memcpy(&value[control.tampers_at], &word, sizeof word);
    quire::fuzz::seal_sum(&value, quire::fuzz::kCanonicalSeal);
    std::memcpy(bytes, value.data(), size_bytes);
}

void change(Stub &stub, quire_store_answer *answer) {
    quire::test::StubControl &control = *stub.control;
    if (answer->kind == QUIRE_STORE_PUT && control.fails_puts) answer->outcome = QUIRE_STORE_FAILED;
    if (answer->kind == QUIRE_STORE_FIND) {
        if ((control.denies >> stub.sought[answer->cookie] % 64 & 1) != 0)
            answer->outcome = control.fails_finds ? QUIRE_STORE_FAILED : QUIRE_STORE_MISS;
        stub.sought.erase(answer->cookie);
    }
    if (answer->kind != QUIRE_STORE_GET) return;
    const auto [piece, number] = stub.asked[answer->cookie];
    stub.asked.erase(answer->cookie);
    if ((control.picks >> number % 64 & 1) == 0) return;
    auto *at = static_cast<uint8_t *>(piece.address);
    if (control.spoils) at[piece.size_bytes / 2] ^= 1;
    if (control.tampers_at < piece.size_bytes) tamper(control, at, piece.size_bytes);
    if (control.swaps && stub.first_value.size() == piece.size_bytes)
        std::memcpy(at, stub.first_value.data(), piece.size_bytes);
    if (control.fails_gets) answer->outcome = QUIRE_STORE_FAILED;
    if (control.cuts) answer->outcome = QUIRE_STORE_SIZE;
    if (control.forgets) answer->outcome = QUIRE_STORE_MISS;
}

uint32_t turn_of(const quire::test::StubControl &control, const Asked &one) {
    return control.descends ? control.starts_at - one.number : one.number - control.starts_at;
}

// Where in `held` the next answer is; its end: that has to wait.
std::vector<quire_store_answer>::iterator next_answer(Stub &stub) {
    const quire::test::StubControl &control = *stub.control;
    if (control.starts_at == UINT32_MAX || stub.asked.empty()) return stub.held.begin();
    const auto next =
        std::min_element(stub.asked.begin(), stub.asked.end(), [&](const auto &a, const auto &b) {
            return turn_of(control, a.second) < turn_of(control, b.second);
        });
    return std::find_if(stub.held.begin(), stub.held.end(),
                        [&](const auto &answer) { return answer.cookie == next->first; });
}

quire_status reap(quire_store *store, quire_store_answer *answers, uint32_t capacity,
                  uint32_t stride, uint32_t *count, quire_error *error) {
    Stub &stub = stub_of(store);
    quire::test::StubControl &control = *stub.control;
    std::vector<quire_store_answer> &held = stub.held;
    std::lock_guard<std::mutex> lock(mutex);
    for (;;) {
        quire_store_answer some[16] = {};
        uint32_t reaped = 0;
        quire_status status = memory->reap(store, some, 16, sizeof some[0], &reaped, error);
        if (status != QUIRE_OK) return status;
        held.insert(held.end(), some, some + reaped);
        if (reaped != 16) break;
    }
    *count = 0;
    if (control.holds) return QUIRE_OK;
    if (control.reverses) std::reverse(held.begin(), held.end());
    while (*count < capacity && !held.empty() && control.lets != 0) {
        const auto next = next_answer(stub);
        if (next == held.end()) break;
        quire_store_answer answer = *next;
        held.erase(next);
        if (control.lets != UINT32_MAX) --control.lets;
        change(stub, &answer);
        if (control.lies) answer.cookie ^= 1;
        std::memcpy(reinterpret_cast<char *>(answers) + uint64_t{*count} * stride, &answer,
                    sizeof answer);
        ++*count;
    }
    return QUIRE_OK;
}

quire_status find(quire_store *store, const quire_store_label *labels, uint32_t count,
                  uint32_t stride, uint8_t *found, quire_error *error) {
    quire_status status = memory->find(store, labels, count, stride, found, error);
    if (stub_of(store).control->doubts) std::memset(found, QUIRE_STORE_UNKNOWN, count);
    return status;
}

quire_status get_info(quire_store *store, quire_store_info *info, quire_error *error) {
    quire_status status = memory->get_info(store, info, error);
    if (stub_of(store).control->is_remote) info->flags |= QUIRE_STORE_REMOTE;
    return status;
}

quire_status cancel(quire_store *store, uint64_t, quire_error *) {
    ++stub_of(store).control->cancels;
    return QUIRE_OK;
}

// The option "stub" says which control is this store's; the memory store does not know it.
quire_status open_store(const quire_store_desc *desc, quire_store **out, quire_error *error) {
    std::vector<quire_store_option> options;
    uint32_t number = 0;
    for (uint32_t i = 0; i < desc->option_count; ++i) {
        const auto &option = *reinterpret_cast<const quire_store_option *>(
            reinterpret_cast<const char *>(desc->options) + uint64_t{i} * desc->option_stride);
        if (std::strcmp(option.name, "stub") == 0) {
            number = static_cast<uint32_t>(option.value[0] - '0') % quire::test::kStubs;
        } else {
            options.push_back(option);
        }
    }
    quire_store_desc passed = *desc;
    passed.options = options.data();
    passed.option_count = static_cast<uint32_t>(options.size());
    passed.option_stride = sizeof options[0];
    quire_status status = memory->open(&passed, out, error);
    if (status != QUIRE_OK) return status;
    std::lock_guard<std::mutex> lock(mutex);
    stubs[*out] = Stub{};
    stubs[*out].control = &controls[number];
    return QUIRE_OK;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) quire::test::StubControl *quire_stub_control() {
    return controls;
}

quire_status quire_store_query_v0(const quire_host_info *host, const quire_store_api **out,
                                  quire_error *error) {
    static quire_store_api api;
    quire_status status = quire_store_query_of_memory(host, &memory, error);
    if (status != QUIRE_OK) return status;
    api = *memory;
    api.name = "stub";
    api.open = open_store;
    api.submit = submit;
    api.reap = reap;
    api.cancel = cancel;
    api.get_info = get_info;
    api.find = find;
    *out = &api;
    return QUIRE_OK;
}
