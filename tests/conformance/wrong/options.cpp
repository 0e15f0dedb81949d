// SPDX-License-Identifier: Apache-2.0
//
// options: faults of attention's options, of rope, merges and moves.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "faults.hpp"
#include "quire/attention.h"
#include "quire/cache.h"
#include "remember.hpp"
#include "tests/device/fill_range.hpp"

namespace quire::wrong {

namespace {

// Faults of plans. --------------------------------------------------------------------------------

// Makes the plan from a desc modified by `change`.
template <typename Change>
quire_status spoil_plan(quire_be_device *device, const quire_be_plan_desc *desc,
                        quire_be_plan **out, quire_error *error, Change change) {
    if (desc == nullptr || desc->struct_size < sizeof *desc) {
        return right().plan_create(device, desc, out, error);
    }
    quire_be_plan_desc other = *desc;
    change(&other);
    return remember_changed_plan(device, desc, &other, out, error);
}

quire_status widen_sunk_window(quire_be_device *device, const quire_be_plan_desc *desc,
                               quire_be_plan **out, quire_error *error) {
    return spoil_plan(device, desc, out, error, [](quire_be_plan_desc *other) {
        if (other->shape.sink_tokens != 0) other->shape.window += 1;
    });
}

quire_status forget_sink_tokens(quire_be_device *device, const quire_be_plan_desc *desc,
                                quire_be_plan **out, quire_error *error) {
    return spoil_plan(device, desc, out, error, [](quire_be_plan_desc *other) {
        if (other->shape.group_kind == QUIRE_GROUP_WINDOW) other->shape.sink_tokens = 0;
    });
}

quire_status widen_chunk(quire_be_device *device, const quire_be_plan_desc *desc,
                         quire_be_plan **out, quire_error *error) {
    return spoil_plan(device, desc, out, error, [](quire_be_plan_desc *other) {
        if (other->shape.group_kind == QUIRE_GROUP_CHUNKED) other->shape.window += 1;
    });
}

quire_status swap_pairing(quire_be_device *device, const quire_be_plan_desc *desc,
                          quire_be_plan **out, quire_error *error) {
    return spoil_plan(device, desc, out, error, [](quire_be_plan_desc *other) {
        if (other->rope != nullptr && other->shape.rope_pairing <= QUIRE_ROPE_PAIRS) {
            other->shape.rope_pairing ^= 1;
        }
    });
}

quire_status turn_slopes_over(quire_be_device *device, const quire_be_plan_desc *desc,
                              quire_be_plan **out, quire_error *error) {
    return spoil_plan(device, desc, out, error, [](quire_be_plan_desc *other) {
        if (other->alibi_slopes == nullptr) return;
        auto *slopes = copy_of<float>(address_of(other->alibi_slopes), other->shape.q_heads);
        for (uint32_t h = 0; h < other->shape.q_heads; ++h) slopes[h] = -slopes[h];
        other->alibi_slopes = slopes;
    });
}

quire_status forget_soft_cap(quire_be_device *device, const quire_be_plan_desc *desc,
                             quire_be_plan **out, quire_error *error) {
    return spoil_plan(device, desc, out, error, [](quire_be_plan_desc *other) {
        if (other->soft_cap > 0.0f) other->soft_cap = 1e6f;
    });
}

// Faults of calls. --------------------------------------------------------------------------------

bool is_call(const quire_be_plan *plan, const quire_be_attention *args) {
    return plan != nullptr && args != nullptr && args->struct_size >= sizeof *args &&
           args->pool != nullptr && args->query_tokens != 0 && args->lengths != 0;
}

quire_status plan_cross_causal(quire_be_device *device, const quire_be_plan_desc *desc,
                               quire_be_plan **out, quire_error *error) {
    return spoil_plan(device, desc, out, error, [](quire_be_plan_desc *other) {
        if (other->shape.group_kind != QUIRE_GROUP_CROSS) return;
        if ((other->shape.flags & QUIRE_ATTENTION_NOT_CAUSAL) == 0) return;
        other->shape.group_kind = QUIRE_GROUP_FULL;
        other->shape.flags &= ~uint32_t{QUIRE_ATTENTION_NOT_CAUSAL};
    });
}

quire_status attend_cross_causal(quire_be_queue *queue, quire_be_plan *plan,
                                 const quire_be_attention *args, quire_error *error) {
    if (!is_call(plan, args) || args->pool->group_kind != QUIRE_GROUP_CROSS) {
        return right().attention(queue, plan, args, error);
    }
    quire_be_pool pool = *args->pool;
    pool.group_kind = QUIRE_GROUP_FULL;
    quire_be_attention other = *args;
    other.pool = &pool;
    return right().attention(queue, plan, &other, error);
}

// True if K is small enough for the kernel of full groups.
bool is_small_latent(uint32_t group_kind, uint32_t k_dim) {
    return group_kind == QUIRE_GROUP_LATENT && k_dim <= 256;
}

quire_status plan_latent_tail(quire_be_device *device, const quire_be_plan_desc *desc,
                              quire_be_plan **out, quire_error *error) {
    return spoil_plan(device, desc, out, error, [](quire_be_plan_desc *other) {
        quire_be_attention_query &shape = other->shape;
        if (shape.kv_heads == 1 && shape.v_head_dim <= shape.k_head_dim &&
            is_small_latent(shape.group_kind, shape.k_head_dim)) {
            shape.group_kind = QUIRE_GROUP_FULL;
        }
    });
}

// Takes V from the end of the row instead of its beginning.
quire_status attend_latent_tail(quire_be_queue *queue, quire_be_plan *plan,
                                const quire_be_attention *args, quire_error *error) {
    if (!is_call(plan, args) || !is_small_latent(args->pool->group_kind, args->pool->k_head_dim)) {
        return right().attention(queue, plan, args, error);
    }
    quire_be_pool pool = *args->pool;
    pool.group_kind = QUIRE_GROUP_FULL;
    pool.v_offset = int64_t{pool.k_head_dim - pool.v_head_dim} * bytes_of(pool.k_dtype);
    quire_be_attention other = *args;
    other.pool = &pool;
    return right().attention(queue, plan, &other, error);
}

quire_status count_sinks_twice(quire_be_queue *queue, quire_be_plan *plan,
                               const quire_be_attention *args, quire_error *error) {
    if (!is_call(plan, args) || args->sinks == 0) {
        return right().attention(queue, plan, args, error);
    }
    uint32_t heads = desc_of(plan).shape.q_heads;
    auto *sinks = copy_of<float>(args->sinks, heads);
    for (uint32_t h = 0; h < heads; ++h) sinks[h] += std::log(2.0f);
    quire_be_attention other = *args;
    other.sinks = address_of(sinks);
    return right().attention(queue, plan, &other, error);
}

quire_status share_a_block_more(quire_be_queue *queue, quire_be_plan *plan,
                                const quire_be_attention *args, quire_error *error) {
    if (!is_call(plan, args) || args->shared_prefix == 0) {
        return right().attention(queue, plan, args, error);
    }
    uint32_t stride = args->block_table_stride;
    auto *table = copy_of<int32_t>(args->block_table, size_t{args->row_count} * stride);
    const auto *shared = host<const int32_t>(args->shared_prefix);
    for (uint32_t r = 1; r < args->row_count; ++r) {
        auto entry = static_cast<uint32_t>(shared[r]);
        if (entry == 0 || entry >= stride) continue;
        int32_t before = table[size_t{r - 1} * stride + entry];
        if (before != 0) table[size_t{r} * stride + entry] = before;
    }
    quire_be_attention other = *args;
    other.block_table = address_of(table);
    other.shared_prefix = 0;  // its counts no longer hold
    return right().attention(queue, plan, &other, error);
}

// Faults of masks. --------------------------------------------------------------------------------

struct Masks {
    const int32_t *lengths;
    const int32_t *cu_q;
    const int32_t *rows;
    const int32_t *first;
    const uint32_t *words;

    explicit Masks(const quire_be_attention &args)
        : lengths(host<const int32_t>(args.lengths)),
          cu_q(host<const int32_t>(args.cu_q)),
          rows(host<const int32_t>(args.mask_rows)),
          first(host<const int32_t>(args.mask_first)),
          words(host<const uint32_t>(args.mask)) {}

    // One past the last word of this token.
    size_t end_of(uint32_t row, int32_t token) const {
        return static_cast<size_t>(rows[token] + (lengths[row] - first[row] + 31) / 32);
    }
};

bool has_masks(const quire_be_plan *plan, const quire_be_attention *args) {
    return is_call(plan, args) && args->mask != 0 && args->mask_rows != 0 &&
           args->mask_first != 0 && args->positions != 0;
}

// Calls body(row, token) for each token that has a mask.
template <typename Body>
void for_each_masked(const quire_be_attention &args, const Masks &masks, Body body) {
    for (uint32_t row = 0; row < args.row_count; ++row) {
        for (int32_t token = masks.cu_q[row]; token < masks.cu_q[row + 1]; ++token) {
            if (masks.rows[token] >= 0) body(row, token);
        }
    }
}

// Caps the -inf that stands for a hidden key, which makes it a number.
quire_status cap_after_mask(quire_be_queue *queue, quire_be_plan *plan,
                            const quire_be_attention *args, quire_error *error) {
    if (!has_masks(plan, args) || (desc_of(plan).shape.flags & QUIRE_BE_ATTENTION_SOFT_CAP) == 0) {
        return right().attention(queue, plan, args, error);
    }
    Masks masks(*args);
    size_t count = 0;
    for_each_masked(*args, masks, [&](uint32_t row, int32_t token) {
        count = std::max(count, masks.end_of(row, token));
    });
    quire_be_attention other = *args;
    other.mask = address_of(kept(std::vector<uint32_t>(count + 1, ~0u)));
    return right().attention(queue, plan, &other, error);
}

quire_status shift_mask(quire_be_queue *queue, quire_be_plan *plan, const quire_be_attention *args,
                        quire_error *error) {
    if (!has_masks(plan, args)) return right().attention(queue, plan, args, error);
    auto *first = copy_of<int32_t>(args->mask_first, args->row_count);
    for (uint32_t r = 0; r < args->row_count; ++r) {
        if (first[r] < host<const int32_t>(args->lengths)[r]) ++first[r];
    }
    quire_be_attention other = *args;
    other.mask_first = address_of(first);
    return right().attention(queue, plan, &other, error);
}

quire_status stand_where_it_lies(quire_be_queue *queue, quire_be_plan *plan,
                                 const quire_be_attention *args, quire_error *error) {
    if (!has_masks(plan, args)) return right().attention(queue, plan, args, error);
    Masks masks(*args);
    auto *positions = copy_of<int32_t>(args->positions, args->query_tokens);
    for_each_masked(*args, masks, [&](uint32_t row, int32_t token) {
        positions[token] = masks.lengths[row] - masks.cu_q[row + 1] + token;
    });
    quire_be_attention other = *args;
    other.positions = address_of(positions);
    return right().attention(queue, plan, &other, error);
}

// A hidden key has weight 0 but is still read: 0 * NaN is NaN.
quire_status weigh_hidden_keys(quire_be_queue *queue, quire_be_plan *plan,
                               const quire_be_attention *args, quire_error *error) {
    quire_status status = right().attention(queue, plan, args, error);
    if (status != QUIRE_OK || !has_masks(plan, args)) return status;
    Masks masks(*args);
    const quire_be_pool &pool = *args->pool;
    bool has_read_nan = false;
    for_each_masked(*args, masks, [&](uint32_t row, int32_t token) {
        for (int32_t key = masks.first[row]; key < masks.lengths[row]; ++key) {
            int32_t bit = key - masks.first[row];
            if ((masks.words[masks.rows[token] + bit / 32] >> (bit % 32) & 1u) != 0) continue;
            auto tokens = static_cast<int32_t>(pool.block_tokens);
            int64_t block =
                host<const int32_t>(args->block_table)[row * args->block_table_stride +
                                                       static_cast<uint32_t>(key / tokens)];
            const auto *v = host<const unsigned char>(pool.address) + block * pool.block_stride +
                            args->layer * pool.layer_stride + pool.v_offset +
                            key % tokens * pool.v_token_stride;
            has_read_nan = has_read_nan || (v[0] == 0xFF && v[1] == 0xFF);
        }
    });
    if (!has_read_nan) return status;
    return test::fill_range(right(), queue, args->out, bytes_of(desc_of(plan).shape.q_dtype), 0xFF,
                            error);
}

// Faults of rope, merges and moves. ---------------------------------------------------------------

quire_status forget_to_turn_q(quire_be_queue *queue, const quire_be_kv_write *args,
                              quire_error *error) {
    if (args == nullptr || args->struct_size < sizeof *args) {
        return right().kv_write(queue, args, error);
    }
    quire_be_kv_write other = *args;
    other.q = 0;
    return right().kv_write(queue, &other, error);
}

bool is_merge(const quire_be_merge *args) {
    return args != nullptr && args->struct_size >= sizeof *args && args->lses != 0 &&
           args->lses % 4 == 0 && args->part_count > 0 && args->part_count < 1'000;
}

quire_status ignore_an_lse(quire_be_queue *queue, const quire_be_merge *args, quire_error *error) {
    if (!is_merge(args) || args->part_count < 2) return right().merge(queue, args, error);
    size_t rows = size_t{args->token_count} * args->heads;
    auto *lses = copy_of<float>(args->lses, rows * args->part_count);
    std::copy_n(lses, rows, lses + rows * (args->part_count - 1));
    quire_be_merge other = *args;
    other.lses = address_of(lses);
    return right().merge(queue, &other, error);
}

// A part that saw nothing has weight 0 but is still read.
quire_status weigh_empty_parts(quire_be_queue *queue, const quire_be_merge *args,
                               quire_error *error) {
    if (!is_merge(args)) return right().merge(queue, args, error);
    size_t count = size_t{args->token_count} * args->heads * args->part_count;
    auto *lses = copy_of<float>(args->lses, count);
    for (size_t i = 0; i < count; ++i) {
        if (std::isinf(lses[i])) lses[i] = std::numeric_limits<float>::lowest();
    }
    quire_be_merge other = *args;
    other.lses = address_of(lses);
    return right().merge(queue, &other, error);
}

quire_status move_backwards(quire_be_queue *queue, const quire_be_pool *pool,
                            const quire_be_move *moves, uint32_t count, quire_error *error) {
    if (moves == nullptr) return right().move_tokens(queue, pool, moves, count, error);
    std::vector<quire_be_move> reversed(moves, moves + count);
    std::reverse(reversed.begin(), reversed.end());
    return right().move_tokens(queue, pool, reversed.data(), count, error);
}

quire_status move_one_layer(quire_be_queue *queue, const quire_be_pool *pool,
                            const quire_be_move *moves, uint32_t count, quire_error *error) {
    if (pool == nullptr) return right().move_tokens(queue, pool, moves, count, error);
    quire_be_pool first = *pool;
    if (first.layer_count > 1) first.layer_count = 1;
    return right().move_tokens(queue, &first, moves, count, error);
}

}  // namespace

bool plant_in_options(const char *fault, quire_backend_api *table) {
    struct {
        const char *name;
        decltype(quire_backend_api::plan_create) plan_create;
        decltype(quire_backend_api::attention) attention;
    } const faults[] = {
        {"widen_sunk_window", widen_sunk_window, nullptr},
        {"forget_sink_tokens", forget_sink_tokens, nullptr},
        {"widen_chunk", widen_chunk, nullptr},
        {"swap_pairing", swap_pairing, nullptr},
        {"turn_slopes_over", turn_slopes_over, nullptr},
        {"forget_soft_cap", forget_soft_cap, nullptr},
        {"cross_causal", plan_cross_causal, attend_cross_causal},
        {"latent_tail", plan_latent_tail, attend_latent_tail},
        {"count_sinks_twice", remember_plan, count_sinks_twice},
        {"share_a_block_more", nullptr, share_a_block_more},
        {"cap_after_mask", remember_plan, cap_after_mask},
        {"shift_mask", nullptr, shift_mask},
        {"stand_where_it_lies", nullptr, stand_where_it_lies},
        {"weigh_hidden_keys", remember_plan, weigh_hidden_keys},
    };
    for (const auto &one : faults) {
        if (std::strcmp(one.name, fault) != 0) continue;
        if (one.plan_create != nullptr) table->plan_create = one.plan_create;
        if (one.attention != nullptr) table->attention = one.attention;
        return true;
    }
    auto is = [&](const char *name) { return std::strcmp(name, fault) == 0; };
    if (is("forget_to_turn_q")) return (table->kv_write = forget_to_turn_q) != nullptr;
    if (is("ignore_an_lse")) return (table->merge = ignore_an_lse) != nullptr;
    if (is("weigh_empty_parts")) return (table->merge = weigh_empty_parts) != nullptr;
    if (is("move_backwards")) return (table->move_tokens = move_backwards) != nullptr;
    if (is("move_one_layer")) return (table->move_tokens = move_one_layer) != nullptr;
    return false;
}

}  // namespace quire::wrong
