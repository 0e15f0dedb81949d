// SPDX-License-Identifier: Apache-2.0

#include "attention.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "plan.hpp"
#include "recorder.hpp"
#include "shared/checks.hpp"
#include "shared/kernel_arguments.hpp"

namespace quire::vulkan {

namespace {

// As in kernels/attend_call.glsl.
enum WidthOption : uint32_t { kWideK = kFirstOwnOption, kWideV = kFirstOwnOption * 2 };
constexpr uint32_t kChunkPlaces = 512;

// kQueries of kernels/attend.comp and of kernels/attend_fragments.comp.
constexpr uint32_t kQueriesPerUnit = 8;
constexpr uint32_t kQueriesPerFragment = 16;

struct AttendArguments {
    uint64_t q, out, lse, block_table, lengths, cu_q, sinks;
    uint64_t positions, mask, mask_rows, mask_first, shared_prefix, slopes;
    uint64_t pool, scales;
    uint64_t token_rows, states, values;
    int64_t block_stride, v_offset;
    int64_t k_head_stride, k_token_stride, v_head_stride, v_token_stride;
    int64_t k_scale_offset, v_scale_offset, scale_head_stride;
    int64_t q_stride, out_stride;
    uint32_t block_table_stride, row_count, query_tokens, block_count;
    uint32_t block_tokens, kv_heads, q_heads, heads_per_kv;
    uint32_t k_dim, v_dim, k_format, v_format, q_format;
    uint32_t options;
    int32_t window, sink_tokens;
    uint32_t chunk_count;
    uint32_t first_token, end_token;
    float scale, soft_cap;
};

// Arguments of kernels/merge.comp.
struct MergeArguments {
    uint64_t parts, lses, out, lse;
    uint64_t row_count;
    uint32_t part_count, head_dim, format;
};

// True if rows may be read four elements at a time.
bool is_wide(const quire_be_pool &pool, int64_t offset, int64_t head_stride, int64_t token_stride,
             uint32_t dim) {
    constexpr uint64_t kWideBytes = 16;
    uint64_t misfit = pool.address | static_cast<uint64_t>(pool.block_stride) |
                      static_cast<uint64_t>(pool.layer_stride) | static_cast<uint64_t>(offset) |
                      static_cast<uint64_t>(head_stride) | static_cast<uint64_t>(token_stride);
    return misfit % kWideBytes == 0 && dim % 4 == 0;
}

uint32_t width_options(const quire_be_pool &pool) {
    uint32_t options = 0;
    if (is_wide(pool, 0, pool.k_head_stride, pool.k_token_stride, pool.k_head_dim)) {
        options |= kWideK;
    }
    if (is_wide(pool, pool.v_offset, pool.v_head_stride, pool.v_token_stride, pool.v_head_dim)) {
        options |= kWideV;
    }
    return options;
}

AttendArguments arguments_of(const PlanOptions &plan, const quire_be_attention &args) {
    AttendArguments to{};
    put_attention(plan, args, &to);
    to.options |= width_options(*args.pool);
    // Rows are no longer than at the commit, nor than their tables; kernels/rows.comp enforces it.
    uint64_t places =
        std::min<uint64_t>(uint64_t{args.block_table_stride} * to.block_tokens, args.max_length);
    to.chunk_count = chunk_count(places, kChunkPlaces);
    return to;
}

std::array<uint64_t, 14> addresses_of(const AttendArguments &of) {
    return {of.q,          of.out,   of.lse,       of.block_table,  of.lengths,
            of.cu_q,       of.sinks, of.positions, of.mask,         of.mask_rows,
            of.mask_first, of.pool,  of.scales,    of.shared_prefix};
}

// Any shape if all shapes share one kernel, else the call's own.
KernelShape shape_of(const Kernels &kernels, const AttendArguments &of) {
    if (!kernels.is_specialising()) return {};
    return {of.k_dim,        of.v_dim,        of.k_format, of.v_format,
            of.heads_per_kv, of.block_tokens, of.options,  of.q_format};
}

struct AttendKernels {
    Kernel rows, attend, reduce;
    uint32_t queries;  // per workgroup of attend
};

// Depends only on the device and the call's shape: fragments.hpp.
KernelName attend_kernel(FragmentKind kind, const AttendArguments &of) {
    FragmentShape shape = {of.q_format, of.k_format, of.v_format, of.k_dim, of.v_dim};
    if (kind == FragmentKind::none || !fits_fragments(shape)) return KernelName::attend;
    return kind == FragmentKind::cooperative ? KernelName::attend_fragments
                                             : KernelName::attend_fragments_plain;
}

quire_status get_kernels(Device &device, const AttendArguments &of, AttendKernels *got,
                         quire_error *error) {
    Kernels &kernels = device.kernels;
    const auto addresses = addresses_of(of);
    if (quire_status status = check_reached(addresses, error)) return status;
    bool is_any_divided = std::any_of(addresses.begin(), addresses.end(), is_divided);
    KernelKey key{KernelName::rows, is_any_divided, {}};
    if (quire_status status = kernels.get(key, &got->rows, error)) return status;
    key.shape = shape_of(kernels, of);
    key.name = attend_kernel(device.context.fragments.kind, of);
    got->queries = key.name == KernelName::attend ? kQueriesPerUnit : kQueriesPerFragment;
    if (quire_status status = kernels.get(key, &got->attend, error)) return status;
    key.name = KernelName::reduce;
    return kernels.get(key, &got->reduce, error);
}

// The layout of the queue's scratch memory, and how many tokens a round has.
struct Scratch {
    uint32_t tokens_per_round;
    uint64_t row_bytes;
    uint64_t state_bytes;
    uint64_t value_bytes;
};

Scratch divide(const AttendArguments &of) {
    constexpr uint64_t kRoundBytes = uint64_t{64} << 20;
    uint64_t states_per_token = uint64_t{of.chunk_count} * of.q_heads;
    uint64_t token_bytes = states_per_token * (of.v_dim + 2) * sizeof(float);
    uint64_t tokens = std::clamp<uint64_t>(kRoundBytes / token_bytes, 1, of.query_tokens);
    Scratch scratch{};
    scratch.tokens_per_round = static_cast<uint32_t>(tokens);
    scratch.row_bytes = (uint64_t{of.query_tokens} * sizeof(int32_t) + 15) / 16 * 16;
    scratch.state_bytes = tokens * states_per_token * 2 * sizeof(float);
    scratch.value_bytes = tokens * states_per_token * of.v_dim * sizeof(float);
    return scratch;
}

uint64_t unit_count(const AttendArguments &of, uint32_t queries) {
    uint32_t heads = std::min(of.heads_per_kv, queries);
    uint64_t slices = (of.heads_per_kv + heads - 1) / heads;
    return uint64_t{of.end_token - of.first_token} * of.kv_heads * slices * of.chunk_count;
}

quire_status no_memory(const char *what, quire_error *error) {
    return fail(error, QUIRE_E_DEVICE_MEMORY, "out of memory for %s", what);
}

quire_status record_attention(Recorder &recorder, const PlanOptions &plan,
                              AttendArguments arguments, quire_error *error) {
    AttendKernels kernels{};
    if (quire_status status = get_kernels(recorder.device(), arguments, &kernels, error)) {
        return status;
    }
    Scratch scratch = divide(arguments);
    Span rows{};
    arguments.token_rows =
        recorder.scratch(scratch.row_bytes + scratch.state_bytes + scratch.value_bytes, &rows);
    if (arguments.token_rows == 0) return no_memory("the chunks of an attention call", error);
    arguments.states = arguments.token_rows + scratch.row_bytes;
    arguments.values = arguments.states + scratch.state_bytes;
    if (plan.slopes != nullptr) {
        arguments.slopes =
            recorder.arguments(plan.slopes.get(), plan.shape.q_heads * sizeof(float));
        if (arguments.slopes == 0) return no_memory("a kernel's arguments", error);
    }
    struct Round {
        uint64_t where, units, queries;
    };
    std::vector<Round> rounds;
    for (uint64_t first = 0; first < arguments.query_tokens; first += scratch.tokens_per_round) {
        arguments.first_token = static_cast<uint32_t>(first);
        arguments.end_token = static_cast<uint32_t>(
            std::min<uint64_t>(first + scratch.tokens_per_round, arguments.query_tokens));
        uint64_t where = recorder.arguments(&arguments, sizeof arguments);
        if (where == 0) return no_memory("a kernel's arguments", error);
        uint64_t tokens = arguments.end_token - arguments.first_token;
        rounds.push_back(
            {where, unit_count(arguments, kernels.queries), tokens * arguments.q_heads});
    }
    recorder.vk().vkCmdFillBuffer(recorder.commands(), rows.buffer, rows.offset, scratch.row_bytes,
                                  UINT32_MAX);  // -1: belongs to no row
    recorder.barrier();
    recorder.dispatch(kernels.rows, rounds[0].where, arguments.row_count);
    for (const Round &round : rounds) {
        recorder.barrier();
        recorder.dispatch(kernels.attend, round.where, round.units);
        recorder.barrier();
        recorder.dispatch(kernels.reduce, round.where, round.queries);
    }
    return QUIRE_OK;
}

}  // namespace

quire_status enqueue_attention(Queue &queue, const Plan &plan, const quire_be_attention &args,
                               quire_error *error) {
    Recorder recorder(queue);
    if (quire_status status = recorder.begin(error)) return status;
    AttendArguments arguments = arguments_of(plan.options, args);
    if (quire_status status = record_attention(recorder, plan.options, arguments, error)) {
        return status;
    }
    return recorder.finish(error);
}

quire_status enqueue_merge(Queue &queue, const quire_be_merge &args, quire_error *error) {
    const std::array<uint64_t, 4> addresses = {args.parts, args.lses, args.out, args.lse};
    if (quire_status status = check_reached(addresses, error)) return status;
    Recorder recorder(queue);
    if (quire_status status = recorder.begin(error)) return status;
    bool is_any_divided = std::any_of(addresses.begin(), addresses.end(), is_divided);
    KernelKey key{KernelName::merge, is_any_divided, {}};
    Kernel kernel{};
    if (quire_status status = queue.device->kernels.get(key, &kernel, error)) return status;
    MergeArguments arguments{};
    put_merge(args, &arguments);
    uint64_t where = recorder.arguments(&arguments, sizeof arguments);
    if (where == 0) return no_memory("a kernel's arguments", error);
    recorder.dispatch(kernel, where, arguments.row_count);
    return recorder.finish(error);
}

}  // namespace quire::vulkan
