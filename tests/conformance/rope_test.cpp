// SPDX-License-Identifier: Apache-2.0
//
// Rope at write: K, and q on request, turned by their positions, against the formula in double.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "attention_case.hpp"
#include "quire/attention.h"
#include "quire/cache.h"
#include "shapes.hpp"

namespace quire::conformance {

class RopeTest : public SubjectTest {
 protected:
    RopeTest() : SubjectTest(Needs::attention) {}
};

namespace {

constexpr uint32_t kValueTypes[] = {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16};
constexpr uint32_t kBlocks = 5;

struct RopeSpec {
    quire_be_attention_query shape{};
    uint32_t dtype = QUIRE_DTYPE_F32;  // of K, V and q as given
    Layout layout = Layout::head_major;
    uint32_t padding = 0;
    uint64_t seed = 1;
    float magnitude = 1.0f;
    bool turns_q = true;
    bool allows_f32_angles = true;
    int32_t most_position = 200'000;

    bool is_latent() const { return shape.group_kind == QUIRE_GROUP_LATENT; }
    // The dim of K as given: a latent pool receives the rest as v.
    uint32_t k_given() const { return is_latent() ? shape.v_head_dim : shape.k_head_dim; }
    uint32_t v_given() const {
        return is_latent() ? shape.k_head_dim - shape.v_head_dim : shape.v_head_dim;
    }
};

// [tokens][heads][dim] with gaps between tokens, as bytes and as the numbers they hold.
struct Given {
    Given(const RopeSpec &spec, uint32_t dtype, size_t token_count, size_t heads, size_t dim,
          uint64_t salt)
        : row(heads * dim), stride(row + spec.padding), element_bytes(size_of(dtype)) {
        bytes.assign(token_count * stride * element_bytes, 0xFF);
        for (size_t t = 0; t < token_count; ++t) {
            for (size_t i = 0; i < row; ++i) {
                unsigned char *at = &bytes[(t * stride + i) * element_bytes];
                store(chance(spec.seed, t, i, salt), dtype, at);
                values.push_back(load(at, dtype));
            }
        }
    }
    size_t row;
    size_t stride;  // elements
    size_t element_bytes;
    std::vector<unsigned char> bytes;
    std::vector<double> values;  // dense
};

struct Tokens {
    std::vector<int64_t> slots;
    std::vector<int32_t> positions;
};

Tokens random_tokens(const RopeSpec &spec) {
    Dice dice(spec.seed);
    Tokens tokens;
    for (uint32_t slot = 0; slot < kBlocks * spec.shape.block_tokens; ++slot) {
        if (dice.roll(0, 1) == 0) continue;
        tokens.slots.push_back(dice.roll(0, 5) == 0 ? -1 : static_cast<int64_t>(slot));
        auto most = static_cast<uint32_t>(spec.most_position);
        tokens.positions.push_back(
            static_cast<int32_t>(dice.pick({0u, 1u, dice.roll(0, 100), dice.roll(0, most)})));
    }
    tokens.slots.push_back(-1);
    tokens.positions.push_back(7);
    return tokens;
}

// Element d of a head after the turn, and how far f32 may be from it. With u = 2^-24: cosine,
// sine and magnitude are wrong by 3 u together, each product by u, their sum by u, all
// relative to (|a| + |b|) magnitude. An angle computed in f32 is wrong by u times itself,
// which turns the pair by as much:
//   |result - exact| <= u (8 + |angle|) magnitude (|a| + |b|)
struct Turned {
    double value;
    double bound;
};

Turned turn(const RopeSpec &spec, const float *frequencies, const double *head, uint32_t begin,
            uint32_t d, int32_t position) {
    uint32_t dim = spec.shape.rotated_dim;
    if (d < begin || d >= begin + dim) return {head[d], 0.0};
    uint32_t half = dim / 2;
    uint32_t in_turn = d - begin;
    bool is_halves = spec.shape.rope_pairing == QUIRE_ROPE_HALVES;
    uint32_t pair = is_halves ? in_turn % half : in_turn / 2;
    bool is_second = is_halves ? in_turn >= half : in_turn % 2 == 1;
    double a = head[begin + (is_halves ? pair : 2 * pair)];
    double b = head[begin + (is_halves ? pair + half : 2 * pair + 1)];
    double angle = position * double{frequencies[pair]};
    double c = std::cos(angle) * double{spec.magnitude};
    double s = std::sin(angle) * double{spec.magnitude};
    double of_angle = spec.allows_f32_angles ? std::fabs(angle) : 0.0;
    double bound = 0x1p-24 * (8 + of_angle) * spec.magnitude * (std::fabs(a) + std::fabs(b));
    return {is_second ? b * c + a * s : a * c - b * s, bound};
}

// In units of the bound; elements that are not turned must be exact except for rounding to `dtype`.
double error_of(const Turned &exact, double value, uint32_t dtype) {
    if (exact.bound == 0.0)
        return decode(encode(exact.value, dtype), dtype) == value ? 0.0 : HUGE_VAL;
    double stored =
        rounding_of(dtype) * (std::fabs(exact.value) + exact.bound) + smallest_of(dtype);
    double error = std::fabs(value - exact.value);
    if (std::isnan(error)) return HUGE_VAL;
    return error <= stored ? 0.0 : (error - stored) / exact.bound;
}

// Writes random tokens through a plan with a rope, and checks everything that must hold.
class RopeCase {
 public:
    RopeCase(Rig &rig, const RopeSpec &spec)
        : rig_(rig),
          spec_(spec),
          tokens_(random_tokens(spec)),
          k_(spec, spec.dtype, tokens_.slots.size(), spec.shape.kv_heads, spec.k_given(), 1),
          v_(spec, spec.dtype, tokens_.slots.size(), spec.shape.kv_heads, spec.v_given(), 2),
          q_(spec, spec.shape.q_dtype, tokens_.slots.size(), spec.shape.q_heads,
             spec.shape.k_head_dim, 3) {
        for (uint32_t i = 0; i < spec.shape.rotated_dim / 2; ++i) {
            frequencies_.push_back(
                static_cast<float>(std::pow(10'000.0, -2.0 * i / spec.shape.rotated_dim)));
        }
    }

    // The largest error in units of the bound.
    double run();

 private:
    double compare_pool(const quire_be_pool &pool, const std::vector<unsigned char> &bytes);
    double compare_queries(const std::vector<unsigned char> &bytes);

    Rig &rig_;
    RopeSpec spec_;
    Tokens tokens_;
    Given k_, v_, q_;
    std::vector<float> frequencies_;
};

double RopeCase::run() {
    quire_be_rope rope = {sizeof rope, spec_.magnitude, frequencies_.data()};
    auto count = static_cast<uint32_t>(tokens_.slots.size());
    quire_be_plan_desc desc{};
    desc.struct_size = sizeof desc;
    desc.shape = spec_.shape;
    desc.max_rows = desc.max_query_tokens = desc.max_blocks_per_row = count;
    desc.rope = &rope;
    quire_be_plan *plan = nullptr;
    Error error;
    must(api().plan_create(rig_.device(), &desc, &plan, &error), error);
    quire_be_pool pool = make_pool(spec_.shape, spec_.layout, 3, kBlocks, 8 * spec_.padding);
    Guarded memory(rig_, pool.size_bytes);
    pool.address = memory.address();
    Memory k(rig_, k_.bytes.size() + 1), v(rig_, v_.bytes.size() + 1);
    Guarded q(rig_, q_.bytes.size());
    Memory slots(rig_, count * sizeof(int64_t)), positions(rig_, count * sizeof(int32_t));
    rig_.write(k.address(), k_.bytes.data(), k_.bytes.size());
    rig_.write(v.address(), v_.bytes.data(), v_.bytes.size());
    rig_.write(q.address(), q_.bytes.data(), q_.bytes.size());
    rig_.write(slots.address(), tokens_.slots.data(), count * sizeof(int64_t));
    rig_.write(positions.address(), tokens_.positions.data(), count * sizeof(int32_t));
    quire_be_kv_write args{};
    args.struct_size = sizeof args;
    args.layer = 1;
    args.token_count = count;
    args.dtype = spec_.dtype;
    args.pool = &pool;
    args.k = k.address();
    args.v = v.address();
    args.slots = slots.address();
    args.k_token_stride = static_cast<int64_t>(k_.stride);
    args.v_token_stride = static_cast<int64_t>(v_.stride);
    args.plan = plan;
    args.positions = positions.address();
    args.q = spec_.turns_q ? q.address() : 0;
    args.q_token_stride = static_cast<int64_t>(q_.stride);
    must(api().kv_write(rig_.queue(), &args, &error), error);
    // Enqueued work keeps what it needs of the plan and of the plan's inputs.
    api().plan_destroy(plan);
    rig_.sync();
    EXPECT_TRUE(rig_.read(k.address(), k_.bytes.size()) == k_.bytes) << "k was written";
    return std::max(compare_pool(pool, memory.read()), compare_queries(q.read()));
}

double RopeCase::compare_pool(const quire_be_pool &pool, const std::vector<unsigned char> &bytes) {
    const quire_be_attention_query &shape = spec_.shape;
    uint32_t begin = spec_.is_latent() ? shape.k_head_dim - shape.rotated_dim : 0;
    std::vector<bool> is_written(bytes.size(), false);
    double worst = 0.0;
    auto look = [&](int64_t at, uint32_t dtype, const Turned &exact) {
        auto place = static_cast<size_t>(at);
        for (size_t i = 0; i < size_of(dtype); ++i) is_written[place + i] = true;
        worst = std::max(worst, error_of(exact, load(&bytes[place], dtype), dtype));
    };
    for (size_t t = 0; t < tokens_.slots.size(); ++t) {
        int64_t slot = tokens_.slots[t];
        if (slot < 0) continue;
        int64_t place = slot % pool.block_tokens;
        int64_t layer = slot / pool.block_tokens * pool.block_stride + pool.layer_stride;
        for (uint32_t h = 0; h < shape.kv_heads; ++h) {
            size_t k_first = t * k_.row + h * spec_.k_given();
            size_t v_first = t * v_.row + h * spec_.v_given();
            auto k_begin = k_.values.begin() + static_cast<int64_t>(k_first);
            auto v_begin = v_.values.begin() + static_cast<int64_t>(v_first);
            std::vector<double> head(k_begin, k_begin + spec_.k_given());
            if (spec_.is_latent()) head.insert(head.end(), v_begin, v_begin + spec_.v_given());
            int64_t k = layer + h * pool.k_head_stride + place * pool.k_token_stride;
            for (uint32_t d = 0; d < shape.k_head_dim; ++d) {
                look(k + int64_t{d} * size_of(pool.k_dtype), pool.k_dtype,
                     turn(spec_, frequencies_.data(), head.data(), begin, d, tokens_.positions[t]));
            }
            int64_t v =
                layer + pool.v_offset + h * pool.v_head_stride + place * pool.v_token_stride;
            for (uint32_t d = 0; d < shape.v_head_dim && !spec_.is_latent(); ++d) {
                look(v + int64_t{d} * size_of(pool.v_dtype), pool.v_dtype, {v_begin[d], 0.0});
            }
        }
    }
    for (size_t i = 0; i < bytes.size(); ++i) {
        if (is_written[i] || bytes[i] == Guarded::unwritten(i)) continue;
        ADD_FAILURE() << "byte " << i << " of the pool was written";
        break;
    }
    return worst;
}

double RopeCase::compare_queries(const std::vector<unsigned char> &bytes) {
    if (!spec_.turns_q) {
        EXPECT_TRUE(bytes == q_.bytes) << "q was turned without being requested";
        return 0.0;
    }
    const quire_be_attention_query &shape = spec_.shape;
    uint32_t begin = spec_.is_latent() ? shape.k_head_dim - shape.rotated_dim : 0;
    double worst = 0.0;
    for (size_t t = 0; t < tokens_.slots.size(); ++t) {
        for (uint32_t h = 0; h < shape.q_heads; ++h) {
            for (uint32_t d = 0; d < shape.k_head_dim; ++d) {
                const double *head = &q_.values[t * q_.row + size_t{h} * shape.k_head_dim];
                Turned exact =
                    turn(spec_, frequencies_.data(), head, begin, d, tokens_.positions[t]);
                size_t at = (t * q_.stride + size_t{h} * shape.k_head_dim + d) * q_.element_bytes;
                double value = load(&bytes[at], shape.q_dtype);
                worst = std::max(worst, error_of(exact, value, shape.q_dtype));
            }
        }
        for (size_t i = q_.row * q_.element_bytes; i < q_.stride * q_.element_bytes; ++i) {
            EXPECT_EQ(bytes[t * q_.stride * q_.element_bytes + i], 0xFF) << "the gap after q";
        }
    }
    return worst;
}

RopeSpec random_rope(uint64_t seed, uint32_t pairing, bool is_latent) {
    Dice dice(seed);
    RopeSpec spec;
    spec.seed = seed;
    quire_be_attention_query &shape = spec.shape;
    shape.struct_size = sizeof shape;
    shape.flags = QUIRE_BE_ATTENTION_ROPE;
    shape.q_dtype = dice.pick(kValueTypes);
    shape.k_dtype = dice.pick(kValueTypes);
    shape.v_dtype = is_latent ? shape.k_dtype : dice.pick(kValueTypes);
    shape.kv_heads = is_latent ? 1 : dice.roll(1, 3);
    shape.q_heads = shape.kv_heads * dice.roll(1, 3);
    shape.v_head_dim = is_latent ? dice.pick({512u, dice.roll(1, 100)}) : dice.roll(1, 128);
    uint32_t turnable = dice.pick({64u, 128u, dice.roll(2, 100)});
    if (is_latent) turnable = dice.pick({64u, dice.roll(2, 64)});
    shape.k_head_dim = turnable + (is_latent ? shape.v_head_dim : 0);
    shape.rotated_dim = dice.pick({turnable, dice.roll(2, turnable)}) / 2 * 2;
    shape.rope_pairing = pairing;
    shape.block_tokens = dice.pick({1u, 4u, 16u});
    if (is_latent) shape.group_kind = QUIRE_GROUP_LATENT;
    spec.dtype = dice.pick(kValueTypes);
    spec.layout = dice.roll(0, 1) == 0 ? Layout::head_major : Layout::token_major;
    spec.padding = dice.pick({0u, 1u, 3u});
    spec.magnitude = dice.pick({1.0f, 0.75f, 1.3f});
    spec.turns_q = dice.roll(0, 3) != 0;
    return spec;
}

// Keeps the spec, or replaces it with one of a common shape; false if neither is offered.
bool fit(Rig &rig, RopeSpec *spec) {
    if (is_offered(rig, spec->shape)) return true;
    for (const quire_be_attention_query &common : common_shapes()) {
        RopeSpec plain = *spec;
        plain.shape.q_heads = common.q_heads;
        plain.shape.kv_heads = common.kv_heads;
        plain.shape.k_head_dim = plain.shape.v_head_dim = common.k_head_dim;
        plain.shape.rotated_dim = common.k_head_dim;
        plain.shape.q_dtype = plain.shape.k_dtype = plain.shape.v_dtype = common.k_dtype;
        plain.shape.block_tokens = 16;
        if (spec->is_latent() || !is_offered(rig, plain.shape)) continue;
        *spec = plain;
        return true;
    }
    return false;
}

void expect_random_ropes_agree(uint32_t pairing, bool is_latent, uint64_t first_seed) {
    Rig rig;
    uint32_t run_count = 0;
    double worst = 0.0;
    for (uint64_t seed : seeds(first_seed, 100, 15)) {
        RopeSpec spec = random_rope(seed, is_latent ? seed % 2 : pairing, is_latent);
        if (!fit(rig, &spec)) continue;
        ++run_count;
        double error = RopeCase(rig, spec).run();
        ASSERT_LE(error, 1.0) << "seed " << seed << ", dims " << spec.shape.k_head_dim << "/"
                              << spec.shape.v_head_dim << ", turned " << spec.shape.rotated_dim;
        worst = std::max(worst, error);
    }
    if (run_count == 0) GTEST_SKIP() << "the backend offers no such rope";
    testing::Test::RecordProperty("random_shapes", std::to_string(run_count));
    testing::Test::RecordProperty("largest_error", std::to_string(worst));
}

}  // namespace

TEST_F(RopeTest, random_shapes_over_ropes_in_halves_agree_with_the_formula) {
    expect_random_ropes_agree(QUIRE_ROPE_HALVES, false, 1);
}

TEST_F(RopeTest, random_shapes_over_ropes_in_pairs_agree_with_the_formula) {
    expect_random_ropes_agree(QUIRE_ROPE_PAIRS, false, 1'001);
}

TEST_F(RopeTest, latent_random_shapes_over_ropes_of_latent_pools_agree_with_the_formula) {
    expect_random_ropes_agree(0, true, 2'001);
}

TEST_F(RopeTest, position_0_leaves_every_bit) {
    Rig rig;
    for (uint32_t pairing : {QUIRE_ROPE_HALVES, QUIRE_ROPE_PAIRS}) {
        RopeSpec spec = random_rope(5, pairing, false);
        spec.magnitude = 1.0f;
        spec.most_position = 0;
        spec.allows_f32_angles = false;
        if (!fit(rig, &spec)) GTEST_SKIP() << ask(rig, spec.shape).reason;
        EXPECT_LE(RopeCase(rig, spec).run(), 1.0);
    }
}

// The angle in double: in f32, at position 10^6, the fastest pair is off by 0.03.
class RopePrecisionTest : public SubjectTest {
 protected:
    RopePrecisionTest() : SubjectTest(Needs::attention) {}
    void SetUp() override {
        for (const char *name : {"cpu", "cuda", "hip", "vulkan"}) {
            if (std::strcmp(api().name, name) == 0) return SubjectTest::SetUp();
        }
        GTEST_SKIP() << "a promise of the cpu, cuda, hip and vulkan backends";
    }
};

TEST_F(RopePrecisionTest, far_positions_are_turned_as_exactly_as_near_ones) {
    Rig rig;
    for (uint64_t seed = 3'000; seed < 3'010; ++seed) {
        RopeSpec spec = random_rope(seed, seed % 2, false);
        spec.allows_f32_angles = false;
        spec.most_position = INT32_MAX;
        EXPECT_LE(RopeCase(rig, spec).run(), 1.0) << seed;
    }
}

}  // namespace quire::conformance
