// SPDX-License-Identifier: Apache-2.0

#include "recorder.hpp"

#include <map>
#include <vector>

#include "cpu_table.hpp"

namespace {

// All arguments of a call, by value: a graph holds no pointer of its caller's.
struct Call {
    quire_be_queue *queue = nullptr;
    quire_be_plan *plan = nullptr;  // nullptr: a kv_write
    quire_be_pool pool{};
    quire_be_kv_write kv{};
    quire_be_attention attention{};
};

const quire_backend_api *cpu = nullptr;
quire_backend_api table{};
std::map<uint32_t, std::vector<Call>> recordings;
bool recording_now = false;
uint32_t current = 0;

quire_status kv_write(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error) {
    if (recording_now) {
        Call call;
        call.queue = queue;
        call.pool = *args->pool;
        call.kv = *args;
        recordings[current].push_back(call);
    }
    return cpu->kv_write(queue, args, error);
}

quire_status attention(quire_be_queue *queue, quire_be_plan *plan, const quire_be_attention *args,
                       quire_error *error) {
    if (recording_now) {
        Call call;
        call.queue = queue;
        call.plan = plan;
        call.pool = *args->pool;
        call.attention = *args;
        recordings[current].push_back(call);
    }
    return cpu->attention(queue, plan, args, error);
}

quire_status repeat(Call call) {
    quire_error error{};
    error.struct_size = sizeof error;
    if (call.plan == nullptr) {
        call.kv.pool = &call.pool;
        return cpu->kv_write(call.queue, &call.kv, &error);
    }
    call.attention.pool = &call.pool;
    return cpu->attention(call.queue, call.plan, &call.attention, &error);
}

}  // namespace

extern "C" {

QUIRE_EXPORT void quire_recorder_start(uint32_t recording) {
    current = recording;
    recording_now = true;
    recordings[recording].clear();
}

QUIRE_EXPORT void quire_recorder_stop(void) { recording_now = false; }

QUIRE_EXPORT int32_t quire_recorder_replay(uint32_t recording) {
    int32_t count = 0;
    for (const Call &call : recordings[recording]) {
        if (quire_status status = repeat(call)) return status;
        ++count;
    }
    return count;
}

QUIRE_EXPORT uint64_t quire_recorder_rows_id(uint32_t recording, uint32_t index) {
    return recordings[recording].at(index).attention.rows_id;
}

quire_status quire_backend_query_v0(const quire_host_info *host, const quire_backend_api **out,
                                    quire_error *error) {
    quire_status status = quire::test::find_cpu_table(host, &cpu, error);
    if (status < 0) return status;
    table = *cpu;
    table.name = "recorder";
    table.kv_write = kv_write;
    table.attention = attention;
    *out = &table;
    return QUIRE_OK;
}
}
