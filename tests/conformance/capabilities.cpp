// SPDX-License-Identifier: Apache-2.0

#include "capabilities.hpp"

#include <sstream>

#include "quire/cache.h"

namespace quire::conformance {

namespace {

bool is_any(const SweptShape &swept) { return swept.kind == Kind::causal; }

template <uint32_t k, uint32_t v>
bool has_pool(const SweptShape &swept) {
    return is_any(swept) && swept.shape.k_dtype == k && swept.shape.v_dtype == v;
}

bool holds_values(const SweptShape &swept) {
    return swept.shape.k_scale_kind == QUIRE_SCALE_NONE &&
           swept.shape.v_scale_kind == QUIRE_SCALE_NONE;
}

bool is_mixed(const SweptShape &swept) {
    return is_any(swept) && holds_values(swept) && swept.shape.k_dtype != swept.shape.v_dtype;
}

bool has_other_query(const SweptShape &swept) {
    return is_any(swept) && holds_values(swept) && swept.shape.q_dtype != swept.shape.k_dtype &&
           swept.shape.k_dtype == swept.shape.v_dtype;
}

template <uint32_t dtype, uint32_t kind>
bool has_codes(const SweptShape &swept) {
    return has_pool<dtype, dtype>(swept) && swept.shape.k_scale_kind == kind;
}

bool takes_codes(const SweptShape &swept) {
    return swept.kind == Kind::write && !holds_values(swept);
}

bool attends_codes(const SweptShape &swept) { return is_any(swept) && !holds_values(swept); }

bool has_mixed_codes(const SweptShape &swept) {
    return attends_codes(swept) && swept.shape.k_dtype != swept.shape.v_dtype;
}

template <Kind kind>
bool is_kind(const SweptShape &swept) {
    return swept.kind == kind;
}

bool has_rope(const SweptShape &swept) {
    return swept.kind == Kind::rope_halves || swept.kind == Kind::rope_pairs;
}

bool has_odd_dim(const SweptShape &swept) {
    return is_any(swept) && (swept.shape.k_head_dim == 40 || swept.shape.k_head_dim == 8);
}
bool has_other_block(const SweptShape &swept) {
    return is_any(swept) && swept.shape.block_tokens != 16;
}
bool has_two_dims(const SweptShape &swept) {
    return is_any(swept) && swept.shape.k_head_dim != swept.shape.v_head_dim;
}

constexpr char kDeviceSlots[] = "probe device_open device_close device_props shutdown";
constexpr char kAttentionSlots[] = "query_attention plan_create plan_destroy attention";

using enum Need;
constexpr uint32_t f32 = QUIRE_DTYPE_F32, f16 = QUIRE_DTYPE_F16, bf16 = QUIRE_DTYPE_BF16;
constexpr uint32_t i8 = QUIRE_DTYPE_I8, i4 = QUIRE_DTYPE_I4, e4m3 = QUIRE_DTYPE_F8_E4M3FN,
                   e5m2 = QUIRE_DTYPE_F8_E5M2;
constexpr uint32_t kTensor = QUIRE_SCALE_TENSOR, kHead = QUIRE_SCALE_HEAD,
                   kTokenHead = QUIRE_SCALE_TOKEN_HEAD;

const Capability kCapabilities[] = {
    {"loading", must, "The exported function is pure and repeatable, and refuses with a message.",
     "probe", "Load.*", nullptr, nullptr},
    {"devices", must, "Devices are counted, opened, described and closed.", kDeviceSlots,
     "DeviceTest.*", nullptr, nullptr},
    {"memory", must, "Aligned to 4,096 bytes, zeroed, and refused with an error if exhausted.",
     "mem_alloc mem_free", "MemoryTest.*:ScrubTest.*", nullptr, nullptr},
    {"fences", must, "64-bit values that only grow, raised and awaited by hosts and queues.",
     "fence_create fence_destroy fence_read fence_signal_host fence_wait_host fence_signal "
     "fence_wait",
     "FenceTest.*", nullptr, nullptr},
    {"queues", must, "Calls only enqueue; a queue runs in order; queues do not hold each other up.",
     "queue_bind queue_release quiesce", "QueueTest.*", nullptr, nullptr},
    {"copies", must, "Between device and host, from zero to very many bytes, exact to the byte.",
     "copy", "CopyTest.*", nullptr, nullptr},
    {"fills", must, "A byte over any number of ranges.", "fill", "FillTest.*", nullptr, nullptr},
    {"life of objects", must, "Live objects are counted, and nothing leaks.", "shutdown",
     "LifeTest.*", nullptr, nullptr},
    {"kv write", must, "New tokens go to their slots, rounded to nearest even.",
     "query_attention kv_write", "KvWriteTest.*", nullptr, nullptr},
    {"refusals", must, "A wrong argument is refused with a message, and nothing runs.",
     "query_attention kv_write plan_create attention", "RefusalTest.*:OptionRefusalTest.*", nullptr,
     nullptr},
    {"answers", must, "query_attention and plan_create agree.", kAttentionSlots, "AnswerTest.*",
     nullptr, nullptr},
    {"attention", must, "Within the bound of an oracle in double, whatever unused memory holds.",
     kAttentionSlots,
     "AttentionTest.random_shapes_*:AttentionTest.one_common_shape_*:AttentionTest.scale_*:"
     "AttentionTest.every_combination_*:AttentionTest.many_query_heads_*:"
     "AttentionTest.long_row_*:AttentionTest.large_scores_*:AttentionTest.empty_context_*:"
     "AttentionTest.nothing_to_compute_*:AttentionTest.wrong_block_*:"
     "AttentionTest.unwritten_slot_*:AttentionTest.score_that_*:AttentionTest.query_that_*:"
     "AttentionTest.large_score_*:AttentionTest.many_small_*:AttentionTest.value_that_*:OptionTest."
     "random_shapes_over_full_"
     "groups_*",
     nullptr, nullptr},
    {"consistency", must, "Split, merged, chunked, batched or on other pages: the same result.",
     kAttentionSlots, "MetamorphicTest.*", nullptr, nullptr},
    {"f32 pools", may, "K and V stored as f32.", kAttentionSlots,
     "AttentionTest.random_shapes_over_f32_*", has_pool<f32, f32>, nullptr},
    {"f16 pools", may, "K and V stored as f16.", kAttentionSlots,
     "AttentionTest.random_shapes_over_f16_*", has_pool<f16, f16>, nullptr},
    {"bf16 pools", may, "K and V stored as bf16.", kAttentionSlots,
     "AttentionTest.random_shapes_over_bf16_*", has_pool<bf16, bf16>, nullptr},
    {"K and V of two types", may, "A pool whose K and V differ in type.", kAttentionSlots,
     "AttentionTest.random_shapes_over_mixed_*:AttentionTest.every_combination_*", is_mixed,
     nullptr},
    {"quantised writes", may, "Codes and scales to the bit, as quire/cache.h defines them.",
     "query_attention kv_write plan_create plan_destroy",
     "QuantisedWriteTest.*:QuantisedRefusalTest.*", takes_codes, nullptr},
    {"magnitudes", may, "A write keeps the largest magnitudes of K and V, for calibration.",
     "query_attention kv_write", "AmaxTest.*", nullptr, nullptr},
    {"int8, scales per tensor", may, "One scale for all heads of a layer, given.", kAttentionSlots,
     "QuantisedTest.random_shapes_over_int8_scaled_per_tensor_*", has_codes<i8, kTensor>, nullptr},
    {"int8, scales per head", may, "A scale for each KV head of a layer, given.", kAttentionSlots,
     "QuantisedTest.random_shapes_over_int8_scaled_per_head_*", has_codes<i8, kHead>, nullptr},
    {"int8, scales per token and head", may, "A scale for each row, made at the write.",
     kAttentionSlots, "QuantisedTest.random_shapes_over_int8_scaled_per_token_and_head_*",
     has_codes<i8, kTokenHead>, nullptr},
    {"int4, scales per tensor", may, "One scale for all heads of a layer, given.", kAttentionSlots,
     "QuantisedTest.random_shapes_over_int4_scaled_per_tensor_*", has_codes<i4, kTensor>, nullptr},
    {"int4, scales per head", may, "A scale for each KV head of a layer, given.", kAttentionSlots,
     "QuantisedTest.random_shapes_over_int4_scaled_per_head_*", has_codes<i4, kHead>, nullptr},
    {"int4, scales per token and head", may, "A scale for each row, made at the write.",
     kAttentionSlots, "QuantisedTest.random_shapes_over_int4_scaled_per_token_and_head_*",
     has_codes<i4, kTokenHead>, nullptr},
    {"fp8 e4m3, scales per tensor", may, "One scale for all heads of a layer, given.",
     kAttentionSlots, "QuantisedTest.random_shapes_over_fp8_e4m3_scaled_per_tensor_*",
     has_codes<e4m3, kTensor>, nullptr},
    {"fp8 e4m3, scales per head", may, "A scale for each KV head of a layer, given.",
     kAttentionSlots, "QuantisedTest.random_shapes_over_fp8_e4m3_scaled_per_head_*",
     has_codes<e4m3, kHead>, nullptr},
    {"fp8 e4m3, scales per token and head", may, "A scale for each row, made at the write.",
     kAttentionSlots, "QuantisedTest.random_shapes_over_fp8_e4m3_scaled_per_token_and_head_*",
     has_codes<e4m3, kTokenHead>, nullptr},
    {"fp8 e5m2, scales per tensor", may, "One scale for all heads of a layer, given.",
     kAttentionSlots, "QuantisedTest.random_shapes_over_fp8_e5m2_scaled_per_tensor_*",
     has_codes<e5m2, kTensor>, nullptr},
    {"fp8 e5m2, scales per head", may, "A scale for each KV head of a layer, given.",
     kAttentionSlots, "QuantisedTest.random_shapes_over_fp8_e5m2_scaled_per_head_*",
     has_codes<e5m2, kHead>, nullptr},
    {"fp8 e5m2, scales per token and head", may, "A scale for each row, made at the write.",
     kAttentionSlots, "QuantisedTest.random_shapes_over_fp8_e5m2_scaled_per_token_and_head_*",
     has_codes<e5m2, kTokenHead>, nullptr},
    {"codes of two types", may, "K and V with different types of codes, or one without codes.",
     kAttentionSlots, "QuantisedTest.random_shapes_over_codes_of_two_types_*", has_mixed_codes,
     nullptr},
    {"codes in general", may,
     "With every option that is offered, in any batch, and close to the values given.",
     kAttentionSlots,
     "QuantisedTest.random_shapes_over_codes_with_every_option_*:QuantisedTest.row_over_codes_*:"
     "QuantisedTest.output_over_*:QuantisedTest.queries_*:QuantisedTest.nan_code_*",
     attends_codes, nullptr},
    {"queries of another type", may, "q and out in f32 over a pool in a half type.",
     kAttentionSlots, "AttentionTest.every_combination_*", has_other_query, nullptr},
    {"windows", may, "A query sees only its newest keys.", kAttentionSlots,
     "AttentionTest.window_*:OptionTest.random_shapes_over_windows_agree_*", is_kind<Kind::window>,
     nullptr},
    {"not causal", may, "Every new token sees the whole context.", kAttentionSlots,
     "AttentionTest.not_causal_*:MetamorphicTest.*_of_many_queries:"
     "OptionTest.random_shapes_over_whole_contexts_*",
     is_kind<Kind::not_causal>, nullptr},
    {"odd head dims", may, "Head dims that fit no tile, such as 8 and 40.", kAttentionSlots,
     "AttentionTest.every_head_dim_*", has_odd_dim, nullptr},
    {"two head dims", may, "K and V of different head dims.", kAttentionSlots,
     "AttentionTest.every_head_dim_*", has_two_dims, nullptr},
    {"other block sizes", may, "Block sizes other than 16 tokens.", kAttentionSlots,
     "AttentionTest.blocks_of_every_size_*", has_other_block, nullptr},
    {"sink tokens", may, "A window keeps the sequence's first tokens in sight.", kAttentionSlots,
     "OptionTest.*_sink_tokens_*:OptionTest.window_keeps_*", is_kind<Kind::window_with_sinks>,
     nullptr},
    {"chunked groups", may, "A query sees its own chunk.", kAttentionSlots,
     "OptionTest.*_chunks_*:OptionTest.chunk_begins_*", is_kind<Kind::chunked>, nullptr},
    {"latent groups", may, "One row of K per token for all heads; V is its beginning.",
     kAttentionSlots, "OptionTest.*_latent_*:OptionTest.latent_*:RopeTest.latent_*",
     is_kind<Kind::latent>, nullptr},
    {"cross groups", may, "Attention over another input, all of it.", kAttentionSlots,
     "OptionTest.*_cross_*:OptionTest.cross_*", is_kind<Kind::cross>, nullptr},
    {"soft cap", may, "Scores are limited by a soft cap.", kAttentionSlots,
     "OptionTest.*_soft_caps_*:OptionTest.soft_cap_*", is_kind<Kind::soft_cap>, nullptr},
    {"ALiBi", may, "Scores fall with the distance.", kAttentionSlots,
     "OptionTest.*_alibi_*:OptionTest.alibi_*", is_kind<Kind::alibi>, nullptr},
    {"sink logits", may, "A learned logit joins the denominator.", kAttentionSlots,
     "OptionTest.*_sink_logits_*:OptionTest.sink_logit_*", is_kind<Kind::sink_logits>, nullptr},
    {"masks", may, "Bits say which keys a token sees, as for a tree of drafts.", kAttentionSlots,
     "OptionTest.*_masks_*:OptionTest.mask_*:OptionTest.row_without_a_mask_*", is_kind<Kind::mask>,
     nullptr},
    {"shared prefixes", may,
     "The result is the same when the call is told which blocks rows share.", kAttentionSlots,
     "OptionTest.*_shared_prefixes_*:OptionTest.shared_prefix_*", nullptr, nullptr},
    {"options together", may, "Random mixtures of options that may be combined.", kAttentionSlots,
     "OptionTest.*_mixed_options_*", nullptr, nullptr},
    {"rope at write", may, "K and q are turned by their positions, and rounded once.",
     "query_attention kv_write plan_create plan_destroy", "RopeTest.*", has_rope, nullptr},
    {"merge", may, "States over parts of a context become one, in order.", "merge", "MergeTest.*",
     nullptr, nullptr},
    {"token moves", may, "Tokens go from slot to slot, one after another.", "move_tokens",
     "MoveTest.*", nullptr, nullptr},
    {"memory of the engine's", may, "Copies read and write the engine's own memory in place.",
     "mem_import", "ImportTest.*", nullptr, nullptr},
    {"far places", may, "Offsets past 4 GiB and 31-bit ids, given that much memory.",
     kAttentionSlots, "FarTest.*", nullptr, nullptr},
    {"batch invariance", may,
     "The bits of a row do not depend on the batch, the chunks or the block size.", kAttentionSlots,
     "InvarianceTest.*", is_kind<Kind::batch_invariant>, nullptr},
    {"promises of backends/cpu", may, "Faults stop a queue, threads are quiet, README is true.",
     "attention", "FaultTest.*:ThreadTest.*:ReadmeTest.*:RopePrecisionTest.*", nullptr, "cpu"},
};

}  // namespace

const std::vector<Capability> &capabilities() {
    static const std::vector<Capability> list(std::begin(kCapabilities), std::end(kCapabilities));
    return list;
}

namespace {

std::vector<std::string> parts_of(const std::string &patterns) {
    std::vector<std::string> parts;
    std::istringstream in(patterns);
    for (std::string part; std::getline(in, part, ':');) parts.push_back(part);
    return parts;
}

bool fits(const char *pattern, const char *name) {
    if (*pattern == 0) return *name == 0;
    if (*pattern == '*') return fits(pattern + 1, name) || (*name != 0 && fits(pattern, name + 1));
    return *pattern == *name && fits(pattern + 1, name + 1);
}

}  // namespace

bool matches(const std::string &patterns, const std::string &name) {
    for (const std::string &pattern : parts_of(patterns)) {
        if (fits(pattern.c_str(), name.c_str())) return true;
    }
    return false;
}

std::vector<std::string> list_problems(const std::vector<Capability> &list,
                                       const std::vector<std::string> &cases) {
    std::vector<std::string> problems;
    for (const std::string &name : cases) {
        bool is_claimed = false;
        for (const Capability &one : list) is_claimed = is_claimed || matches(one.cases, name);
        if (!is_claimed) problems.push_back("the case " + name + " belongs to no capability");
    }
    for (const Capability &one : list) {
        if (parts_of(one.cases).empty()) {
            problems.push_back(std::string("the capability '") + one.name + "' names no case");
        }
        for (const std::string &pattern : parts_of(one.cases)) {
            bool is_used = false;
            for (const std::string &name : cases) is_used = is_used || matches(pattern, name);
            if (is_used) continue;
            problems.push_back(std::string("the capability '") + one.name + "' names " + pattern +
                               ", which matches no case");
        }
    }
    return problems;
}

}  // namespace quire::conformance
