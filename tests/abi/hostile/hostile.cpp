// SPDX-License-Identifier: Apache-2.0
//
// hostile: a working backend except for one fault, which QUIRE_HOSTILE names when the library asks
// for its table. A fault "what" or "what:slot" or "what:number:slot" strikes once, so that a caller
// that got the error can go on.
//
//   of the table   major, minor, short, half_slot, huge, null_table, query_throws, query_status,
//                  devices, changes, null_slot:SLOT
//   of its name    name_null, name_empty, name_long, name_open, name_odd
//   of a device    props_free, props_alignment, props_flags, props_visible,
//                  props_name
//   of a slot      throw:SLOT, nothing:SLOT (success and no object), status:NUMBER:SLOT,
//                  open_words:SLOT (a failure whose error has no end), crooked:mem_alloc,
//                  unreachable:mem_alloc, nonsense:query_attention
//
// Threads: one at a time.

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "quire/plugin/backend.h"

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

namespace {

constexpr uint64_t kPage = 4096;

std::string g_fault;
int64_t g_live = 0;     // objects handed out and not given back
uint64_t g_struck = 0;  // how often the fault struck
quire_backend_api g_table;
char g_name[64];

bool strikes(const std::string &fault) {
    if (g_fault != fault) return false;
    g_fault.clear();
    ++g_struck;
    return true;
}

// True if the slot returns a planted failure. May throw.
bool fails(const char *slot, quire_error *error, quire_status *status) {
    std::string name = slot;
    if (strikes("throw:" + name)) throw std::runtime_error("thrown by a backend");
    if (strikes("open_words:" + name)) {
        std::memset(error, 'x', sizeof *error);
        *status = QUIRE_E_DEVICE_LOST;
        return true;
    }
    bool numbered = g_fault.rfind("status:", 0) == 0 && g_fault.size() > name.size() &&
                    g_fault.substr(g_fault.rfind(':') + 1) == name;
    if (!numbered) return false;
    *status = std::atoi(g_fault.c_str() + 7);
    return strikes(g_fault);
}

template <typename T>
quire_status make(const char *slot, T **out, quire_error *error, T value = {}) {
    quire_status status = QUIRE_OK;
    if (fails(slot, error, &status)) return status;
    if (strikes(std::string("nothing:") + slot)) {
        *out = nullptr;
        return QUIRE_OK;
    }
    *out = new T(value);
    ++g_live;
    return QUIRE_OK;
}

template <typename T>
void give_up(const char *slot, T *object) {
    delete object;
    --g_live;
    if (strikes(std::string("throw:") + slot)) throw 7;
}

quire_status probe(uint32_t *count, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (fails("probe", error, &status)) return status;
    *count = strikes("devices") ? 0xFFFFFFFFu : 1;
    if (strikes("changes")) std::memset(static_cast<void *>(&g_table), 0xEE, sizeof g_table);
    return QUIRE_OK;
}

quire_status device_open(const quire_be_device_desc *, quire_be_device **out, quire_error *error) {
    return make("device_open", out, error);
}
void device_close(quire_be_device *device) { give_up("device_close", device); }

quire_status device_props(quire_be_device *, quire_be_device_props *props, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (fails("device_props", error, &status)) return status;
    props->memory_total_bytes = props->memory_free_bytes = uint64_t{1} << 30;
    props->copy_alignment = 64;
    props->host_visible = 1;
    if (strikes("props_free")) props->memory_free_bytes = UINT64_MAX;
    if (strikes("props_alignment")) props->copy_alignment = 0;
    if (strikes("props_flags")) props->flags = QUIRE_BE_DEVICE_FAST_16BIT;
    if (strikes("props_visible")) props->host_visible = 0xFFFFFFFFu;
    if (strikes("props_name")) std::memset(props->name, 'n', sizeof props->name);
    return QUIRE_OK;
}

quire_status query_attention(quire_be_device *, const quire_be_attention_query *,
                             quire_be_answer *answer, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (fails("query_attention", error, &status)) return status;
    answer->support = strikes("nonsense:query_attention") ? 9u : uint32_t{QUIRE_BE_YES};
    std::memset(answer->reason, 'r', sizeof answer->reason);
    return QUIRE_OK;
}

quire_status mem_alloc(quire_be_device *, uint64_t size_bytes, uint32_t kind, uint64_t *address,
                       void **host_pointer, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (fails("mem_alloc", error, &status)) return status;
    if (strikes("nothing:mem_alloc")) return QUIRE_OK;
    bool crooked = strikes("crooked:mem_alloc");
    void *memory = std::aligned_alloc(kPage, (size_bytes + 2 * kPage - 1) / kPage * kPage);
    std::memset(memory, 0, size_bytes);
    ++g_live;
    *address = reinterpret_cast<uint64_t>(memory) + (crooked ? 8 : 0);
    *host_pointer = memory;
    if (kind == QUIRE_BE_MEMORY_HOST && strikes("unreachable:mem_alloc")) *host_pointer = nullptr;
    return QUIRE_OK;
}
void mem_free(quire_be_device *, uint64_t address, uint64_t, uint32_t kind) {
    if (kind != QUIRE_BE_MEMORY_IMPORTED) {
        std::free(reinterpret_cast<void *>(address / kPage * kPage));
    }
    --g_live;
    if (strikes("throw:mem_free")) throw std::runtime_error("thrown by a backend");
}

quire_status queue_bind(quire_be_device *, const quire_native *, quire_be_queue **out,
                        quire_error *error) {
    return make("queue_bind", out, error);
}
void queue_release(quire_be_queue *queue) { give_up("queue_release", queue); }

quire_status fence_create(quire_be_device *, uint64_t value, quire_be_fence **out,
                          quire_error *error) {
    return make("fence_create", out, error, quire_be_fence{value});
}
void fence_destroy(quire_be_fence *fence) { give_up("fence_destroy", fence); }
quire_status fence_read(quire_be_fence *fence, uint64_t *value, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (fails("fence_read", error, &status)) return status;
    *value = fence->value;
    return QUIRE_OK;
}
quire_status raise(const char *slot, quire_be_fence *fence, uint64_t value, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (fails(slot, error, &status)) return status;
    if (value > fence->value) fence->value = value;
    return QUIRE_OK;
}
quire_status fence_signal_host(quire_be_fence *fence, uint64_t value, quire_error *error) {
    return raise("fence_signal_host", fence, value, error);
}
quire_status fence_signal(quire_be_queue *, quire_be_fence *fence, uint64_t value,
                          quire_error *error) {
    return raise("fence_signal", fence, value, error);
}

// A slot whose work is done at once only has to fail if asked to.
quire_status done(const char *slot, quire_error *error) {
    quire_status status = QUIRE_OK;
    return fails(slot, error, &status) ? status : quire_status{QUIRE_OK};
}
quire_status fence_wait_host(quire_be_fence *, uint64_t, uint64_t, quire_error *error) {
    return done("fence_wait_host", error);
}
quire_status fence_wait(quire_be_queue *, quire_be_fence *, uint64_t, quire_error *error) {
    return done("fence_wait", error);
}
quire_status copy(quire_be_queue *, const quire_be_copy *, uint32_t, quire_error *error) {
    return done("copy", error);
}
quire_status fill(quire_be_queue *, const quire_be_range *, uint32_t, uint32_t,
                  quire_error *error) {
    return done("fill", error);
}
quire_status kv_write(quire_be_queue *, const quire_be_kv_write *, quire_error *error) {
    return done("kv_write", error);
}
quire_status plan_create(quire_be_device *, const quire_be_plan_desc *, quire_be_plan **out,
                         quire_error *error) {
    return make("plan_create", out, error);
}
void plan_destroy(quire_be_plan *plan) { give_up("plan_destroy", plan); }
quire_status attention(quire_be_queue *, quire_be_plan *, const quire_be_attention *,
                       quire_error *error) {
    return done("attention", error);
}
quire_status quiesce(quire_be_device *, uint64_t, quire_error *error) {
    return done("quiesce", error);
}
quire_status shutdown(uint64_t *live, quire_error *error) {
    *live = static_cast<uint64_t>(g_live);
    return done("shutdown", error);
}

quire_status merge(quire_be_queue *, const quire_be_merge *, quire_error *error) {
    return done("merge", error);
}
quire_status move_tokens(quire_be_queue *, const quire_be_pool *, const quire_be_move *, uint32_t,
                         quire_error *error) {
    return done("move_tokens", error);
}

quire_status mem_import(quire_be_device *, void *host_pointer, uint64_t size_bytes,
                        uint64_t *address, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (fails("mem_import", error, &status)) return status;
    if (strikes("nothing:mem_import")) return QUIRE_OK;
    ++g_live;
    *address = reinterpret_cast<uint64_t>(host_pointer);
    if (strikes("endless:mem_import")) *address = UINT64_MAX - size_bytes + 1;
    return QUIRE_OK;
}

quire_status native_signal(quire_be_queue *, const quire_native *, quire_error *error) {
    return done("native_signal", error);
}

quire_status native_wait(quire_be_queue *, const quire_native *, quire_error *error) {
    return done("native_wait", error);
}

constexpr quire_backend_api kHonest = {
    sizeof(quire_backend_api),
    QUIRE_BACKEND_ABI_MAJOR,
    QUIRE_BACKEND_ABI_MINOR,
    QUIRE_BACKEND_ABI_MINOR,
    "hostile",
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
    std::memset(g_name, 'h', sizeof g_name);  // unterminated
    if (strikes("name_null")) g_table.name = nullptr;
    if (strikes("name_empty")) g_table.name = "";
    if (strikes("name_open")) g_table.name = g_name;
    if (strikes("name_long")) g_table.name = "a_name_of_more_than_thirty_one_bytes";
    if (strikes("name_odd")) g_table.name = "host\x1b[2J";
}

void spoil_table() {
    if (strikes("major")) g_table.abi_major = 7;
    if (strikes("minor")) g_table.min_host_minor = 99;
    if (strikes("short")) g_table.struct_size = 16;
    if (strikes("half_slot")) g_table.struct_size = sizeof g_table - 4;
    if (strikes("huge")) g_table.struct_size = 0xFFFFFFF8u;
    const std::string prefix = "null_slot:";
    if (g_fault.rfind(prefix, 0) != 0) return;
    auto offset = static_cast<size_t>(std::atoi(g_fault.c_str() + prefix.size()));
    std::memset(reinterpret_cast<char *>(&g_table) + offset, 0, sizeof(void *));
    strikes(g_fault);
}

}  // namespace

extern "C" {

QUIRE_EXPORT int64_t hostile_live();
QUIRE_EXPORT uint64_t hostile_struck();

int64_t hostile_live() { return g_live; }
uint64_t hostile_struck() { return g_struck; }

quire_status quire_backend_query_v0(const quire_host_info *, const quire_backend_api **out,
                                    quire_error *error) {
    const char *fault = std::getenv("QUIRE_HOSTILE");
    g_fault = fault != nullptr ? fault : "";
    g_struck = 0;
    g_table = kHonest;
    spoil_name();
    spoil_table();
    quire_status status = QUIRE_OK;
    if (fails("query", error, &status)) return status;
    *out = strikes("null_table") ? nullptr : &g_table;
    return QUIRE_OK;
}

}  // extern "C"
