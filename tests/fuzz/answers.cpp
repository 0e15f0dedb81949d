// SPDX-License-Identifier: Apache-2.0

#include "answers.hpp"

#include <cstdlib>
#include <map>
#include <utility>

struct quire_be_device {
    uint64_t unused;
};
struct quire_be_queue {
    uint64_t unused;
};
struct quire_be_fence {
    uint64_t value;
};
struct quire_be_plan {
    uint64_t unused;
};

namespace quire::fuzz {

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLargestBytes = uint64_t{8} << 20;  // an honest device is out of memory then

Bytes *g_input = nullptr;
int64_t g_live = 0;
bool g_contradicted = false;
quire_backend_api g_table;
char g_open_name[40];  // without an end
// By the address that was given out. Never destroyed: what the library keeps is in it.
std::map<uint64_t, void *> &g_allocations = *new std::map<uint64_t, void *>;

// True where the input tells a lie. Zeros, and the end, are the truth.
bool lies() { return g_input != nullptr && g_input->byte() >= 232; }
uint64_t any() { return g_input->number(); }

// True if the slot answers at once, with *status. May throw.
bool fails(quire_error *error, quire_status *status) {
    if (!lies()) return false;
    constexpr quire_status kLikely[] = {QUIRE_E_DEVICE_LOST, QUIRE_E_UNSUPPORTED,
                                        QUIRE_E_BUSY,        QUIRE_E_DEVICE_MEMORY,
                                        QUIRE_S_TIMEOUT,     QUIRE_S_NO_BLOCKS};
    uint8_t kind = g_input->byte();
    if (kind == 255) throw 7;
    if (kind & 1) std::memset(error, g_input->byte(), sizeof *error);
    *status = kind < 200 ? kLikely[kind % 6] : static_cast<quire_status>(any());
    return true;
}

template <typename T>
quire_status make(T **out, quire_error *error, T value = {}) {
    quire_status status = QUIRE_OK;
    if (fails(error, &status)) {
        g_contradicted |= status >= 0;
        return status;
    }
    if (lies()) {
        *out = nullptr;
        g_contradicted = true;
        return QUIRE_OK;
    }
    *out = new T(value);
    ++g_live;
    return QUIRE_OK;
}

template <typename T>
void give_up(T *object) {
    delete object;
    --g_live;
}

quire_status probe(uint32_t *count, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (fails(error, &status)) return status;
    *count = lies() ? static_cast<uint32_t>(any()) : 2;
    // What the table says is read before; it may say anything later.
    if (lies()) std::memset(static_cast<void *>(&g_table), 0xEE, sizeof g_table);
    return QUIRE_OK;
}

quire_status device_open(const quire_be_device_desc *, quire_be_device **out, quire_error *error) {
    return make(out, error);
}
void device_close(quire_be_device *device) { give_up(device); }

quire_status device_props(quire_be_device *, quire_be_device_props *props, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (fails(error, &status)) return status;
    props->memory_total_bytes = lies() ? any() : uint64_t{1} << 30;
    props->memory_free_bytes = lies() ? any() : uint64_t{1} << 30;
    props->copy_alignment = lies() ? static_cast<uint32_t>(any()) : 64;
    props->host_visible = lies() ? static_cast<uint32_t>(any()) : 1;
    if (lies()) props->flags = static_cast<uint32_t>(any());
    if (lies()) std::memset(props->name, g_input->byte(), sizeof props->name);
    if (lies()) props->struct_size = static_cast<uint32_t>(any());
    return QUIRE_OK;
}

quire_status query_attention(quire_be_device *, const quire_be_attention_query *,
                             quire_be_answer *answer, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (fails(error, &status)) return status;
    answer->support = lies() ? static_cast<uint32_t>(any()) : uint32_t{QUIRE_BE_YES};
    if (lies()) answer->alignment = static_cast<uint32_t>(any());
    if (lies()) answer->workspace_bytes = any();
    if (lies()) std::memset(answer->reason, g_input->byte(), sizeof answer->reason);
    if (lies()) answer->struct_size = static_cast<uint32_t>(any());
    return QUIRE_OK;
}

quire_status mem_alloc(quire_be_device *, uint64_t size_bytes, uint32_t kind, uint64_t *address,
                       void **host_pointer, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (fails(error, &status)) {
        g_contradicted |= status >= 0;
        return status;
    }
    if (size_bytes > kLargestBytes) return QUIRE_E_DEVICE_MEMORY;
    if (lies()) {
        g_contradicted = true;
        *address = lies() ? ~size_bytes + 1 + any() : 0;
        *host_pointer = nullptr;
        return QUIRE_OK;
    }
    uint64_t room = (size_bytes + 2 * kPage - 1) / kPage * kPage;
    void *memory = std::aligned_alloc(kPage, room);
    if (memory == nullptr) return QUIRE_E_DEVICE_MEMORY;
    std::memset(memory, 0, room);
    uint64_t shift = lies() ? any() % kPage : 0;
    *address = reinterpret_cast<uint64_t>(memory) + shift;
    *host_pointer = reinterpret_cast<void *>(*address);
    if (lies()) {
        g_contradicted |= kind == QUIRE_BE_MEMORY_HOST;
        *host_pointer = nullptr;
    }
    g_contradicted |= shift != 0;
    g_allocations[*address] = memory;
    ++g_live;
    return QUIRE_OK;
}

void mem_free(quire_be_device *, uint64_t address, uint64_t, uint32_t kind) {
    --g_live;
    auto found = g_allocations.find(address);
    if (kind == QUIRE_BE_MEMORY_IMPORTED || found == g_allocations.end()) return;
    std::free(found->second);
    g_allocations.erase(found);
}

quire_status mem_import(quire_be_device *, void *host_pointer, uint64_t size_bytes,
                        uint64_t *address, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (fails(error, &status)) {
        g_contradicted |= status >= 0;
        return status;
    }
    *address = reinterpret_cast<uint64_t>(host_pointer);
    if (lies()) {
        *address = lies() ? ~size_bytes + 1 + any() : 0;
        g_contradicted = true;
    }
    ++g_live;
    return QUIRE_OK;
}

quire_status queue_bind(quire_be_device *, const quire_native *, quire_be_queue **out,
                        quire_error *error) {
    return make(out, error);
}
void queue_release(quire_be_queue *queue) { give_up(queue); }

quire_status fence_create(quire_be_device *, uint64_t value, quire_be_fence **out,
                          quire_error *error) {
    return make(out, error, quire_be_fence{value});
}
void fence_destroy(quire_be_fence *fence) { give_up(fence); }

quire_status fence_read(quire_be_fence *fence, uint64_t *value, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (fails(error, &status)) return status;
    *value = lies() ? any() : fence->value;
    return QUIRE_OK;
}

quire_status raise(quire_be_fence *fence, uint64_t value, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (fails(error, &status)) return status;
    if (lies()) return QUIRE_OK;  // never reached
    if (value > fence->value) fence->value = value;
    return QUIRE_OK;
}
quire_status fence_signal_host(quire_be_fence *fence, uint64_t value, quire_error *error) {
    return raise(fence, value, error);
}
quire_status fence_signal(quire_be_queue *, quire_be_fence *fence, uint64_t value,
                          quire_error *error) {
    return raise(fence, value, error);
}
quire_status fence_wait_host(quire_be_fence *fence, uint64_t value, uint64_t timeout_ns,
                             quire_error *error) {
    quire_status status = QUIRE_OK;
    if (fails(error, &status)) return status;
    if (fence->value >= value) return QUIRE_OK;
    // Nothing will raise it, and a wait without end would be one.
    return timeout_ns == UINT64_MAX ? QUIRE_E_DEVICE_LOST : quire_status{QUIRE_S_TIMEOUT};
}

quire_status done(quire_error *error) {
    quire_status status = QUIRE_OK;
    return fails(error, &status) ? status : quire_status{QUIRE_OK};
}
quire_status fence_wait(quire_be_queue *, quire_be_fence *, uint64_t, quire_error *error) {
    return done(error);
}
quire_status copy(quire_be_queue *, const quire_be_copy *, uint32_t, quire_error *error) {
    return done(error);
}
quire_status fill(quire_be_queue *, const quire_be_range *, uint32_t, uint32_t,
                  quire_error *error) {
    return done(error);
}
quire_status kv_write(quire_be_queue *, const quire_be_kv_write *, quire_error *error) {
    return done(error);
}
quire_status plan_create(quire_be_device *, const quire_be_plan_desc *, quire_be_plan **out,
                         quire_error *error) {
    return make(out, error);
}
void plan_destroy(quire_be_plan *plan) { give_up(plan); }
quire_status attention(quire_be_queue *, quire_be_plan *, const quire_be_attention *,
                       quire_error *error) {
    return done(error);
}
// Memory stays where a device cannot say that it is idle (plugin/backend.h).
quire_status quiesce(quire_be_device *, uint64_t, quire_error *error) {
    bool contradicted_before = std::exchange(g_contradicted, true);  // if done() throws
    quire_status status = done(error);
    g_contradicted = contradicted_before || (status != QUIRE_OK && status != QUIRE_E_DEVICE_LOST);
    return status;
}
quire_status shutdown(uint64_t *live, quire_error *error) {
    *live = lies() ? any() : static_cast<uint64_t>(g_live);
    return done(error);
}
quire_status merge(quire_be_queue *, const quire_be_merge *, quire_error *error) {
    return done(error);
}
quire_status move_tokens(quire_be_queue *, const quire_be_pool *, const quire_be_move *, uint32_t,
                         quire_error *error) {
    return done(error);
}
quire_status native_signal(quire_be_queue *, const quire_native *, quire_error *error) {
    return done(error);
}
quire_status native_wait(quire_be_queue *, const quire_native *, quire_error *error) {
    return done(error);
}

constexpr quire_backend_api kHonest = {
    sizeof(quire_backend_api),
    QUIRE_BACKEND_ABI_MAJOR,
    QUIRE_BACKEND_ABI_MINOR,
    QUIRE_BACKEND_ABI_MINOR,
    "answers",
    "0.0",
    probe,
    device_open,
    device_close,
    device_props,
    query_attention,
    mem_alloc,
    mem_free,
    queue_bind,
    queue_release,
    fence_create,
    fence_destroy,
    fence_read,
    fence_signal_host,
    fence_wait_host,
    fence_signal,
    fence_wait,
    copy,
    fill,
    kv_write,
    plan_create,
    plan_destroy,
    attention,
    quiesce,
    shutdown,
    merge,
    move_tokens,
    native_signal,
    native_wait,
    mem_import,
    QUIRE_BE_FEATURE_ROWS_ID,
};

void spoil_name() {
    std::memset(g_open_name, 'h', sizeof g_open_name);
    const char *names[] = {nullptr, "", "a_name_of_more_than_thirty_one_bytes", "Host\x1b[2J",
                           g_open_name};
    if (lies()) g_table.name = names[g_input->below(5)];
    if (lies()) g_table.version = names[g_input->below(5)];
}

}  // namespace

const quire_backend_api *honest_table() {
    g_input = nullptr;
    g_table = kHonest;
    return &g_table;
}

const quire_backend_api *hostile_table(Bytes *input) {
    g_table = kHonest;
    g_input = input;
    g_contradicted = false;
    if (!lies()) return &g_table;
    if (lies()) return nullptr;
    spoil_name();
    if (lies()) g_table.abi_major = static_cast<uint32_t>(any());
    if (lies()) g_table.abi_minor = static_cast<uint32_t>(any());
    if (lies()) g_table.min_host_minor = static_cast<uint32_t>(any());
    if (lies()) {
        constexpr size_t kSlots = (sizeof g_table - offsetof(quire_backend_api, probe)) / 8;
        size_t slot = g_input->byte() % kSlots;
        std::memset(
            reinterpret_cast<char *>(&g_table) + offsetof(quire_backend_api, probe) + 8 * slot, 0,
            8);
    }
    if (lies()) g_table.struct_size = static_cast<uint32_t>(any());
    return &g_table;
}

int64_t live_objects() { return g_live; }
bool contradicted() { return g_contradicted; }

}  // namespace quire::fuzz
