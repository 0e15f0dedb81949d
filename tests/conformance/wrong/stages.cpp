// SPDX-License-Identifier: Apache-2.0
//
// stages: an unfinished backend, at the stages of "Write a backend in a day".

#include <cstdlib>
#include <cstring>

#include "faults.hpp"

namespace quire::wrong {

namespace {

void leave_out_attention(quire_backend_api *t) {
    t->plan_create = nullptr;
    t->plan_destroy = nullptr;
    t->attention = nullptr;
    t->merge = nullptr;  // these two may be added at any time, and are left out until the last
    t->move_tokens = nullptr;
    t->native_signal = nullptr;
    t->native_wait = nullptr;
    t->mem_import = nullptr;
}

void leave_out_writes(quire_backend_api *t) {
    t->query_attention = nullptr;
    t->kv_write = nullptr;
}

void leave_out_transfers(quire_backend_api *t) {
    t->copy = nullptr;
    t->fill = nullptr;
}

void leave_out_queues(quire_backend_api *t) {
    t->queue_bind = nullptr;
    t->queue_release = nullptr;
    t->fence_create = nullptr;
    t->fence_destroy = nullptr;
    t->fence_read = nullptr;
    t->fence_signal_host = nullptr;
    t->fence_wait_host = nullptr;
    t->fence_signal = nullptr;
    t->fence_wait = nullptr;
    t->quiesce = nullptr;
}

void leave_out_memory(quire_backend_api *t) {
    t->mem_alloc = nullptr;
    t->mem_free = nullptr;
}

}  // namespace

bool stop_at_stage(const char *name, quire_backend_api *table) {
    constexpr char kPrefix[] = "stage_";
    if (std::strncmp(name, kPrefix, sizeof kPrefix - 1) != 0) return false;
    int stage = std::atoi(name + sizeof kPrefix - 1);
    if (stage < 6) leave_out_attention(table);
    if (stage < 5) leave_out_writes(table);
    if (stage < 4) leave_out_transfers(table);
    if (stage < 3) leave_out_queues(table);
    if (stage < 2) leave_out_memory(table);
    return true;
}

}  // namespace quire::wrong
