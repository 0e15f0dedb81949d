// SPDX-License-Identifier: Apache-2.0

#include "faults.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "remember.hpp"
#include "tests/device/fill_range.hpp"

namespace quire::wrong {

namespace {

// Faults of attention. ----------------------------------------------------------------------------

// Reads a row's second block from the place of its first, at one head dim and block size.
quire_status wrong_page(quire_be_queue *queue, quire_be_plan *plan, const quire_be_attention *args,
                        quire_error *error) {
    if (plan == nullptr || args == nullptr || args->pool == nullptr || args->block_table == 0 ||
        args->pool->k_head_dim != 40 || args->pool->block_tokens != 16) {
        return right().attention(queue, plan, args, error);
    }
    const auto *table = host<const int32_t>(args->block_table);
    size_t stride = args->block_table_stride;
    std::vector<int32_t> changed(table, table + args->row_count * stride);
    for (size_t row = 0; row < args->row_count && stride > 1; ++row) {
        changed[row * stride + 1] = changed[row * stride];
    }
    quire_be_attention other = *args;
    other.block_table = address_of(kept(std::move(changed)));
    return right().attention(queue, plan, &other, error);
}

// Clears one element after the result.
quire_status write_beside(quire_be_queue *queue, quire_be_plan *plan,
                          const quire_be_attention *args, quire_error *error) {
    quire_status status = right().attention(queue, plan, args, error);
    if (status != QUIRE_OK || args->query_tokens == 0) return status;
    const quire_be_attention_query shape = desc_of(plan).shape;
    uint64_t elements = (args->query_tokens - 1) * static_cast<uint64_t>(args->out_token_stride) +
                        uint64_t{shape.q_heads} * shape.v_head_dim;
    uint32_t size = bytes_of(shape.q_dtype);
    return test::fill_range(right(), queue, args->out + elements * size, size, 0, error);
}

// A slot past the end of a row has weight 0 but is still read: 0 * NaN is NaN.
quire_status read_poison(quire_be_queue *queue, quire_be_plan *plan, const quire_be_attention *args,
                         quire_error *error) {
    quire_status status = right().attention(queue, plan, args, error);
    if (status != QUIRE_OK || args->query_tokens == 0) return status;
    const quire_be_pool &pool = *args->pool;
    auto length = static_cast<uint32_t>(host<const int32_t>(args->lengths)[0]);
    uint32_t place = length % pool.block_tokens;
    bool has_query = host<const int32_t>(args->cu_q)[1] > 0;
    if (place == 0 || !has_query) return status;
    int64_t block = host<const int32_t>(args->block_table)[length / pool.block_tokens];
    const auto *v = host<const unsigned char>(pool.address) + block * pool.block_stride +
                    args->layer * pool.layer_stride + pool.v_offset + place * pool.v_token_stride;
    if (v[0] != 0xFF || v[1] != 0xFF) return status;  // the suite's poison
    return test::fill_range(right(), queue, args->out, bytes_of(desc_of(plan).shape.q_dtype), 0xFF,
                            error);
}

quire_status ignore_window(quire_be_device *device, const quire_be_plan_desc *desc,
                           quire_be_plan **out, quire_error *error) {
    if (desc == nullptr || desc->struct_size < sizeof *desc) {
        return right().plan_create(device, desc, out, error);
    }
    quire_be_plan_desc other = *desc;
    if (other.shape.window != 0) other.shape.window = 1u << 30;
    return right().plan_create(device, &other, out, error);
}

quire_status ignore_scale(quire_be_device *device, const quire_be_plan_desc *desc,
                          quire_be_plan **out, quire_error *error) {
    if (desc == nullptr || desc->struct_size < sizeof *desc) {
        return right().plan_create(device, desc, out, error);
    }
    quire_be_plan_desc other = *desc;
    other.scale = 0.0f;
    return right().plan_create(device, &other, out, error);
}

// Mimics another order of the sums for more rows: within the bound, but not the same bits.
quire_status vary_with_batch(quire_be_device *device, const quire_be_plan_desc *desc,
                             quire_be_plan **out, quire_error *error) {
    if (desc == nullptr || desc->struct_size < sizeof *desc || desc->max_rows < 2 ||
        desc->scale == 0.0f) {
        return right().plan_create(device, desc, out, error);
    }
    quire_be_plan_desc other = *desc;
    other.scale *= 1.0f + 2.4e-7f;  // two units in the last place
    return right().plan_create(device, &other, out, error);
}

quire_status say_yes(quire_be_device *device, const quire_be_attention_query *query,
                     quire_be_answer *answer, quire_error *error) {
    quire_status status = right().query_attention(device, query, answer, error);
    if (status != QUIRE_OK || answer->support != QUIRE_BE_NO || query->window == 0) return status;
    answer->support = QUIRE_BE_YES;
    answer->alignment = 64;
    answer->reason[0] = 0;
    return status;
}

// Truncates f32 to bf16 instead of rounding.
quire_status truncate(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error) {
    bool is_bf16 = args != nullptr && args->pool != nullptr &&
                   args->pool->k_dtype == QUIRE_DTYPE_BF16 && args->dtype == QUIRE_DTYPE_F32;
    if (!is_bf16 || args->k == 0 || args->token_count == 0)
        return right().kv_write(queue, args, error);
    const auto *k = host<const uint32_t>(args->k);
    size_t count = (args->token_count - 1) * static_cast<size_t>(args->k_token_stride) +
                   size_t{args->pool->kv_heads} * args->pool->k_head_dim;
    std::vector<uint32_t> cut(k, k + count);
    for (uint32_t &bits : cut) bits &= 0xFFFF0000;
    quire_be_kv_write other = *args;
    other.k = address_of(kept(std::move(cut)));
    return right().kv_write(queue, &other, error);
}

// Faults of ordering. -----------------------------------------------------------------------------

quire_be_queue *failed_late = nullptr;

quire_status signal_at_once(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                            quire_error *error) {
    if (queue == nullptr || fence == nullptr) {
        return right().fence_signal(queue, fence, value, error);
    }
    quire_error unheard{};  // a value that would not grow the fence is ignored
    right().fence_signal_host(fence, value, &unheard);
    return right().fence_signal(queue, fence, value, error);
}

// A queue fails if the fence had failed before the wait, and goes on if it fails later.
quire_status fail_late(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                       quire_error *error) {
    uint64_t found = 0;
    quire_error unheard{};
    if (queue != nullptr && fence != nullptr &&
        right().fence_read(fence, &found, &unheard) == QUIRE_OK && found == UINT64_MAX) {
        failed_late = queue;
        return QUIRE_OK;
    }
    return right().fence_wait(queue, fence, value, error);
}
quire_status signal_late(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                         quire_error *error) {
    return right().fence_signal(queue, fence, queue == failed_late ? UINT64_MAX : value, error);
}

// Copies use a second queue, so they run beside the fills of the first.
std::mutex partners_mutex;
std::map<quire_be_queue *, quire_be_queue *> partners;

quire_status bind_two(quire_be_device *device, const quire_native *native, quire_be_queue **out,
                      quire_error *error) {
    quire_status status = right().queue_bind(device, native, out, error);
    if (status != QUIRE_OK) return status;
    std::lock_guard lock(partners_mutex);
    return right().queue_bind(device, native, &partners[*out], error);
}

void release_two(quire_be_queue *queue) {
    std::lock_guard lock(partners_mutex);
    right().queue_release(partners[queue]);
    partners.erase(queue);
    right().queue_release(queue);
}

quire_status copy_beside(quire_be_queue *queue, const quire_be_copy *copies, uint32_t count,
                         quire_error *error) {
    std::lock_guard lock(partners_mutex);
    auto partner = partners.find(queue);
    return right().copy(partner == partners.end() ? queue : partner->second, copies, count, error);
}

quire_status drop_last_byte(quire_be_queue *queue, const quire_be_copy *copies, uint32_t count,
                            quire_error *error) {
    if (copies == nullptr) return right().copy(queue, copies, count, error);
    std::vector<quire_be_copy> cut(copies, copies + count);
    for (quire_be_copy &one : cut) one.size_bytes -= one.size_bytes > 8 << 20;
    return right().copy(queue, cut.data(), count, error);
}

// Faults of lifetimes, crashes and hangs. ---------------------------------------------------------

std::atomic<uint64_t> leaked{0};

void leak_fence(quire_be_fence *fence) { leaked += fence != nullptr; }

quire_status hide_leaks(uint64_t *live_objects, quire_error *error) {
    quire_status status = right().shutdown(live_objects, error);
    if (status == QUIRE_OK) *live_objects -= leaked;
    return status;
}

// One case of the suite makes such calls.
bool has_no_bytes(const quire_be_range *ranges, uint32_t count) {
    auto is_empty = [](const quire_be_range &range) { return range.size_bytes == 0; };
    return count == 0 || (ranges != nullptr && std::all_of(ranges, ranges + count, is_empty));
}

quire_status crash(quire_be_queue *queue, const quire_be_range *ranges, uint32_t count,
                   uint32_t byte, quire_error *error) {
    if (queue != nullptr && has_no_bytes(ranges, count)) std::abort();
    return right().fill(queue, ranges, count, byte, error);
}

quire_status throw_through(quire_be_queue *queue, const quire_be_range *ranges, uint32_t count,
                           uint32_t byte, quire_error *error) {
    if (queue != nullptr && has_no_bytes(ranges, count)) throw 7;
    return right().fill(queue, ranges, count, byte, error);
}

quire_status hang(quire_be_device *device, uint64_t timeout_ns, quire_error *error) {
    while (timeout_ns == 0) pause();
    return right().quiesce(device, timeout_ns, error);
}

}  // namespace

bool plant(const char *fault, quire_backend_api *table) {
    struct {
        const char *name;
        void (*plant)(quire_backend_api *table);
    } const faults[] = {
        {"wrong_page", [](auto *t) { t->attention = wrong_page; }},
        {"write_beside",
         [](auto *t) {
             t->plan_create = remember_plan;
             t->attention = write_beside;
         }},
        {"read_poison",
         [](auto *t) {
             t->plan_create = remember_plan;
             t->attention = read_poison;
         }},
        {"ignore_window", [](auto *t) { t->plan_create = ignore_window; }},
        {"ignore_scale", [](auto *t) { t->plan_create = ignore_scale; }},
        {"vary_with_batch", [](auto *t) { t->plan_create = vary_with_batch; }},
        {"say_yes", [](auto *t) { t->query_attention = say_yes; }},
        {"truncate", [](auto *t) { t->kv_write = truncate; }},
        {"signal_at_once", [](auto *t) { t->fence_signal = signal_at_once; }},
        {"fail_late",
         [](auto *t) {
             t->fence_wait = fail_late;
             t->fence_signal = signal_late;
         }},
        {"copy_beside",
         [](auto *t) {
             t->queue_bind = bind_two;
             t->queue_release = release_two;
             t->copy = copy_beside;
         }},
        {"drop_last_byte", [](auto *t) { t->copy = drop_last_byte; }},
        {"leak_fence", [](auto *t) { t->fence_destroy = leak_fence; }},
        {"leak_fence_and_hide_it",
         [](auto *t) {
             t->fence_destroy = leak_fence;
             t->shutdown = hide_leaks;
         }},
        {"crash", [](auto *t) { t->fill = crash; }},
        {"throw", [](auto *t) { t->fill = throw_through; }},
        {"hang", [](auto *t) { t->quiesce = hang; }},
        {"no_fill", [](auto *t) { t->fill = nullptr; }},
    };
    for (const auto &one : faults) {
        if (std::strcmp(one.name, fault) != 0) continue;
        one.plant(table);
        return true;
    }
    return plant_in_options(fault, table) || plant_in_codes(fault, table);
}

}  // namespace quire::wrong
