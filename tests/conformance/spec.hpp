// SPDX-License-Identifier: Apache-2.0
//
// spec: one attention call as data, and random instances.
//
// A row is a prefix of a content: the value of content c at position p is a function of (seed, c,
// p), so that a chunk, a decode row and a whole prefill of one content hold the same numbers
// wherever their pages lie. The same holds for its masks, and for the per-head ALiBi slopes and
// sink logits of the seed.
//
// Threads: none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "number.hpp"
#include "quire/plugin/backend.h"

namespace quire::conformance {

// A pool over memory that is not allocated yet; address is 0.
enum class Layout { head_major, token_major };
quire_be_pool make_pool(const quire_be_attention_query &shape, Layout layout, uint32_t layer_count,
                        uint32_t block_count, uint32_t padding_bytes);

struct RowSpec {
    uint32_t content = 0;
    int32_t length = 0;
    int32_t new_tokens = 0;
    int32_t shared_tokens = 0;  // whole blocks of the row before, whose content this row continues
    int32_t first_key = 0;      // place in the content of the row's position 0
    int32_t first_query = -1;   // content place of the first new token; -1: same as in the row
    int32_t masked_tokens = 0;  // the last new ones
    int32_t mask_first = 0;     // first place that the bits cover; a tree's is computed
};

enum class MaskKind { bits, tree };

struct AttentionSpec {
    quire_be_attention_query shape{};
    std::vector<RowSpec> rows;
    float scale = 0.0f;
    float soft_cap = 0.0f;
    float slope = 0.0f;     // of ALiBi, for every head; 0: one per head
    double q_size = 1.0;    // larger: sharper softmax
    bool one_sign = false;  // no element of q or K is negative: a score is as large as it can be
    uint64_t seed = 1;
    uint64_t pages_seed = 1;      // which blocks hold what
    unsigned char poison = 0xFF;  // NaN in every float, and so in a scale
    Layout layout = Layout::head_major;
    uint32_t padding = 0;  // elements between tokens of q and out; 8 times as many bytes in strides
    bool wants_lse = true;
    bool shares_pages = true;   // false: shared tokens lie on pages of the row's own
    bool tells_shared = false;  // tells the call which table entries are shared
    MaskKind mask_kind = MaskKind::bits;

    bool has(uint32_t flag) const { return (shape.flags & flag) != 0; }
    std::string text() const;
};

// A masked token, by its place in its content.
struct MaskedToken {
    uint32_t content;
    int64_t first_masked;  // place of the first masked token
    int64_t place;
};
// mask_bit(): true if the token's mask lets it see the key at `key_place`.
// mask_position(): the token's position.
bool mask_bit(const AttentionSpec &spec, const MaskedToken &token, int64_t key_place);
int64_t mask_position(const AttentionSpec &spec, const MaskedToken &token, int64_t last_place);

// The plan's inputs besides the shape.
struct PlanOptions {
    explicit PlanOptions(const AttentionSpec &spec);
    PlanOptions(const PlanOptions &) = delete;
    PlanOptions &operator=(const PlanOptions &) = delete;
    // `desc` then points into this object.
    void put_into(quire_be_plan_desc *desc) const;

    float soft_cap = 0.0f;
    std::vector<float> slopes;
    std::vector<float> frequencies;
    quire_be_rope rope{};
};
std::vector<float> sinks_of(const AttentionSpec &spec);

// Any shape of causal or non-causal attention, with or without a window; with `fit`, one with its
// types, head dims and block size.
AttentionSpec random_spec(uint64_t seed, const quire_be_attention_query *fit = nullptr);

// A row of the table of options.
enum class Variant {
    causal,
    window,
    window_with_sinks,
    chunked,
    latent,
    cross,
    not_causal,
    soft_cap,
    alibi,
    sink_logits,
    mask_bits,
    mask_trees,
    shared_prefix,
    mixed
};
constexpr Variant kVariants[] = {
    Variant::causal,        Variant::window,      Variant::window_with_sinks, Variant::chunked,
    Variant::latent,        Variant::cross,       Variant::not_causal,        Variant::soft_cap,
    Variant::alibi,         Variant::sink_logits, Variant::mask_bits,         Variant::mask_trees,
    Variant::shared_prefix, Variant::mixed};
const char *name_of(Variant variant);

// Types and kinds of scales of K and V.
struct PoolTypes {
    uint32_t k_dtype = 0;
    uint32_t v_dtype = 0;
    uint32_t k_scale_kind = 0;
    uint32_t v_scale_kind = 0;
};
// Sets the shape's types. In a latent shape V's are K's, and dims of int4 become even.
void put_types(const PoolTypes &types, quire_be_attention_query *shape);
// Random types, at least one of which holds codes.
PoolTypes random_codes(uint64_t seed);

// random_spec() with the variant's options; everything else is random.
AttentionSpec random_variant(Variant variant, uint64_t seed,
                             const quire_be_attention_query *fit = nullptr);
// Reduces a row's mask to one that the row can have.
void fit_mask(const AttentionSpec &spec, RowSpec *row);
// Completes the rows of a spec with masks or shared prefixes.
void finish_rows(AttentionSpec *spec);

}  // namespace quire::conformance
