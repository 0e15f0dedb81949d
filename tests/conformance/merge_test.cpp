// SPDX-License-Identifier: Apache-2.0
//
// merge: attention states over parts of a context become the state of the whole.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention_case.hpp"

namespace quire::conformance {

class MergeTest : public SubjectTest {
 protected:
    MergeTest() : SubjectTest(Needs::transfers) {}
    void SetUp() override {
        if (api().merge == nullptr) GTEST_SKIP() << "merge is NULL";
        SubjectTest::SetUp();
    }
};

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
struct MergeSpec {
    uint32_t parts = 2;
    uint32_t tokens = 1;
    uint32_t heads = 1;
    uint32_t dim = 64;
    uint32_t dtype = QUIRE_DTYPE_F32;
    bool wants_lse = true;
    int into_part = -1;  // out is this part, and lse its lses; -1: memory of its own

    size_t rows() const { return size_t{tokens} * heads; }
};

struct Parts {
    std::vector<unsigned char> values;  // [parts][rows][dim]
    std::vector<float> lses;            // [parts][rows]
};

// The values of every part that saw no key are NaN.
Parts random_parts(const MergeSpec &spec, uint64_t seed) {
    Parts parts;
    parts.values.assign(spec.parts * spec.rows() * spec.dim * size_of(spec.dtype), 0xFF);
    for (size_t i = 0; i < spec.parts * spec.rows(); ++i) {
        bool is_empty = mix(seed, i, 1) % 4 == 0 || mix(seed, i % spec.rows(), 2) % 8 == 0;
        double size = mix(seed, 3) % 2 == 0 ? 2.0 : 60.0;
        parts.lses.push_back(is_empty ? -kInfinity : static_cast<float>(size * chance(seed, i, 4)));
        for (size_t d = 0; d < spec.dim && !is_empty; ++d) {
            store(chance(seed, i, d, 5), spec.dtype,
                  &parts.values[(i * spec.dim + d) * size_of(spec.dtype)]);
        }
    }
    return parts;
}

struct Merged {
    std::vector<unsigned char> out;
    std::vector<float> lse;
    bool operator==(const Merged &) const = default;
};

quire_be_merge args_of(const MergeSpec &spec) {
    quire_be_merge args{};
    args.struct_size = sizeof args;
    args.part_count = spec.parts;
    args.token_count = spec.tokens;
    args.heads = spec.heads;
    args.head_dim = spec.dim;
    args.dtype = spec.dtype;
    return args;
}

template <typename T>
std::vector<unsigned char> bytes_of(const std::vector<T> &values) {
    const auto *bytes = reinterpret_cast<const unsigned char *>(values.data());
    return {bytes, bytes + values.size() * sizeof(T)};
}

Merged run(Rig &rig, const MergeSpec &spec, const Parts &parts) {
    uint64_t out_bytes = spec.rows() * spec.dim * size_of(spec.dtype);
    uint64_t lse_bytes = spec.rows() * sizeof(float);
    Guarded values(rig, parts.values.size());
    Guarded lses(rig, parts.lses.size() * sizeof(float));
    Guarded own_out(rig, out_bytes);
    Guarded own_lse(rig, lse_bytes);
    rig.write(values.address(), parts.values.data(), parts.values.size());
    rig.write(lses.address(), parts.lses.data(), parts.lses.size() * sizeof(float));
    auto part = static_cast<uint64_t>(std::max(0, spec.into_part));
    bool is_apart = spec.into_part < 0;
    quire_be_merge args = args_of(spec);
    args.parts = values.address();
    args.lses = lses.address();
    args.out = is_apart ? own_out.address() : values.address() + part * out_bytes;
    args.lse = is_apart ? own_lse.address() : lses.address() + part * lse_bytes;
    if (!spec.wants_lse) args.lse = 0;
    Error error;
    must(api().merge(rig.queue(), &args, &error), error);
    rig.sync();
    Merged merged;
    merged.out = rig.read(args.out, out_bytes);
    std::vector<unsigned char> lse =
        spec.wants_lse ? rig.read(args.lse, lse_bytes) : std::vector<unsigned char>();
    merged.lse.resize(lse.size() / sizeof(float));
    if (!lse.empty()) std::memcpy(merged.lse.data(), lse.data(), lse.size());
    std::vector<unsigned char> all = values.read();
    std::vector<unsigned char> unwanted = own_lse.read();
    own_out.read();
    if (is_apart) {
        EXPECT_TRUE(all == parts.values) << "a part was written";
        EXPECT_TRUE(lses.read() == bytes_of(parts.lses)) << "a part's lse was written";
    }
    for (uint64_t i = 0; i < unwanted.size() && (!spec.wants_lse || !is_apart); ++i) {
        EXPECT_EQ(unwanted[i], Guarded::unwritten(i))
            << "an LSE was written without being requested";
    }
    return merged;
}

// The largest error in units of the bound, all in f32 with u = 2^-24. The relative error of a
// weight exp(lse_i - top) / sum: the difference contributes u |lse_i - top|, which the
// weight's smallness reduces to less than u; exponential, sum and quotient contribute n + 4
// units. The sum over n parts adds n + 1. The bound is twice that, for exponentials less
// exact than the C library's:
//   |out - exact| <= 2 u (2 n + 6) max |part|, plus the rounding to out's type
//   |lse - exact| <= 2 u (n + 6 + |lse|)
double distance(const MergeSpec &spec, const Parts &parts, const Merged &merged) {
    constexpr double kUnit = 0x1p-23;
    double worst = 0.0;
    for (size_t row = 0; row < spec.rows(); ++row) {
        double top = -HUGE_VAL;
        for (size_t i = 0; i < spec.parts; ++i) {
            top = std::max(top, double{parts.lses[i * spec.rows() + row]});
        }
        double sum = 0.0;
        for (size_t i = 0; i < spec.parts && !std::isinf(top); ++i) {
            sum += std::exp(parts.lses[i * spec.rows() + row] - top);
        }
        double lse = sum == 0.0 ? -HUGE_VAL : top + std::log(sum);
        if (spec.wants_lse && double{merged.lse[row]} != lse) {
            double error = std::fabs(merged.lse[row] - lse);
            if (!std::isfinite(error)) return HUGE_VAL;
            worst = std::max(worst, error / (kUnit * (spec.parts + 6 + std::fabs(lse))));
        }
        for (size_t d = 0; d < spec.dim; ++d) {
            double exact = 0.0;
            double largest = 0.0;
            for (size_t i = 0; i < spec.parts; ++i) {
                size_t at = i * spec.rows() + row;
                if (std::isinf(parts.lses[at])) continue;
                double value =
                    load(&parts.values[(at * spec.dim + d) * size_of(spec.dtype)], spec.dtype);
                exact += std::exp(parts.lses[at] - lse) * value;
                largest = std::max(largest, std::fabs(value));
            }
            double value =
                load(&merged.out[(row * spec.dim + d) * size_of(spec.dtype)], spec.dtype);
            double stored = rounding_of(spec.dtype) * std::fabs(exact) + smallest_of(spec.dtype);
            double error = std::fabs(value - exact);
            if (std::isnan(error) || (largest == 0.0 && value != 0.0)) return HUGE_VAL;
            if (error <= stored) continue;
            worst = std::max(worst, (error - stored) / (kUnit * (2 * spec.parts + 6) * largest));
        }
    }
    return worst;
}

MergeSpec random_merge(uint64_t seed) {
    Dice dice(seed);
    MergeSpec spec;
    spec.parts = dice.pick({1u, 2u, 3u, dice.roll(1, 40)});
    spec.tokens = dice.pick({1u, 2u, dice.roll(1, 70)});
    spec.heads = dice.pick({1u, 8u, dice.roll(1, 20)});
    spec.dim = dice.pick({64u, 128u, 512u, dice.roll(1, 600)});
    spec.dtype = dice.pick(kValueTypes);
    spec.wants_lse = dice.roll(0, 3) != 0;
    if (dice.roll(0, 2) == 0) spec.into_part = static_cast<int>(dice.roll(0, spec.parts - 1));
    return spec;
}

}  // namespace

TEST_F(MergeTest, random_shapes_over_merges_agree_with_the_formula_whatever_empty_parts_hold) {
    Rig rig;
    uint32_t count = options().is_short ? 15 : 100;
    double worst = 0.0;
    for (uint64_t seed = 1; seed <= count; ++seed) {
        MergeSpec spec = random_merge(seed);
        Parts parts = random_parts(spec, seed);
        double error = distance(spec, parts, run(rig, spec, parts));
        ASSERT_LE(error, 1.0) << "seed " << seed;
        worst = std::max(worst, error);
    }
    RecordProperty("random_shapes", std::to_string(count));
    RecordProperty("largest_error", std::to_string(worst));
}

TEST_F(MergeTest, parts_that_saw_no_key_give_zeros_and_minus_infinity) {
    Rig rig;
    for (uint32_t dtype : kValueTypes) {
        MergeSpec spec{3, 2, 2, 40, dtype};
        Parts parts;
        parts.values.assign(3 * spec.rows() * spec.dim * size_of(dtype), 0xFF);
        parts.lses.assign(3 * spec.rows(), -kInfinity);
        Merged merged = run(rig, spec, parts);
        for (unsigned char byte : merged.out) ASSERT_EQ(byte, 0);
        for (float lse : merged.lse) ASSERT_EQ(lse, -kInfinity);
    }
}

// As a part has whose sink logit is infinite.
TEST_F(MergeTest, part_whose_lse_is_infinite_has_all_weight) {
    Rig rig;
    MergeSpec spec{.parts = 3, .tokens = 1, .heads = 2, .dim = 64};
    Parts parts;
    parts.lses = {1.0f, 2.0f, kInfinity, 3.0f, -kInfinity, 4.0f};  // row 0: the second part
    parts.values.resize(parts.lses.size() * spec.dim * sizeof(float));
    for (size_t i = 0; i < parts.lses.size() * spec.dim; ++i) {
        store(i < 4 * spec.dim ? 7.0 + static_cast<double>(i) : 1.0, spec.dtype,
              &parts.values[i * sizeof(float)]);
    }
    Merged merged = run(rig, spec, parts);
    EXPECT_EQ(merged.lse[0], kInfinity);
    EXPECT_TRUE(std::equal(merged.out.begin(), merged.out.begin() + 64 * sizeof(float),
                           parts.values.begin() + 2 * 64 * sizeof(float)));
    EXPECT_NEAR(merged.lse[1], 4.0 + std::log(1.0 + std::exp(-1.0) + std::exp(-2.0)), 1e-5);
}

TEST_F(MergeTest, one_part_gives_that_part) {
    Rig rig;
    MergeSpec spec{1, 3, 2, 64};
    Parts parts = random_parts(spec, 9);
    EXPECT_LE(distance(spec, parts, run(rig, spec, parts)), 1.0);
}

TEST_F(MergeTest, merge_into_a_part_gives_the_bits_of_one_beside) {
    Rig rig;
    for (uint64_t seed = 200; seed < 210; ++seed) {
        MergeSpec spec = random_merge(seed);
        spec.into_part = -1;
        Parts parts = random_parts(spec, seed);
        Merged beside = run(rig, spec, parts);
        for (uint32_t part = 0; part < spec.parts; ++part) {
            spec.into_part = static_cast<int>(part);
            EXPECT_TRUE(run(rig, spec, parts) == beside) << "seed " << seed << ", part " << part;
        }
    }
}

TEST_F(MergeTest, nothing_to_merge_is_done) {
    Rig rig;
    Memory memory(rig, 4096);
    quire_be_merge args = args_of({2, 0, 4, 64});
    args.parts = args.out = args.lses = memory.address();
    Error error;
    EXPECT_EQ(api().merge(rig.queue(), &args, &error), QUIRE_OK) << error.message;
    rig.sync();
}

TEST_F(MergeTest, bad_merge_is_refused) {
    Rig rig;
    Memory memory(rig, 1 << 16);
    quire_be_merge good = args_of({2, 3, 4, 64});
    good.parts = memory.address();
    good.lses = memory.address() + 8192;
    good.out = memory.address() + 16384;
    struct {
        quire_status expected;
        const char *what;
        void (*spoil)(quire_be_merge &args);
    } const spoilt[] = {
        {QUIRE_E_STRUCT, "short args", [](auto &a) { a.struct_size -= 1; }},
        {QUIRE_E_UNSUPPORTED, "type", [](auto &a) { a.dtype = (6 << 16) | (8 << 8) | 1; }},
        {QUIRE_E_ARG, "no parts", [](auto &a) { a.part_count = 0; }},
        {QUIRE_E_ARG, "no heads", [](auto &a) { a.heads = 0; }},
        {QUIRE_E_ARG, "no dim", [](auto &a) { a.head_dim = 0; }},
        {QUIRE_E_ARG, "no address of parts", [](auto &a) { a.parts = 0; }},
        {QUIRE_E_ARG, "no address of lses", [](auto &a) { a.lses = 0; }},
        {QUIRE_E_ARG, "no out", [](auto &a) { a.out = 0; }},
        {QUIRE_E_ARG, "out between elements", [](auto &a) { a.out += 1; }},
        {QUIRE_E_ARG, "lses between elements", [](auto &a) { a.lses += 2; }},
        {QUIRE_E_ARG, "more than 64 bits",
         [](auto &a) { a.part_count = a.token_count = a.heads = a.head_dim = UINT32_MAX; }},
    };
    for (const auto &one : spoilt) {
        SCOPED_TRACE(one.what);
        quire_be_merge args = good;
        one.spoil(args);
        Error error;
        expect_refused(api().merge(rig.queue(), &args, &error), error, one.expected);
    }
    Error error;
    expect_refused(api().merge(nullptr, &good, &error), error, QUIRE_E_ARG);
    expect_refused(api().merge(rig.queue(), nullptr, &error), error, QUIRE_E_ARG);
    EXPECT_EQ(api().merge(rig.queue(), &good, &error), QUIRE_OK) << error.message;
    rig.sync();
}

}  // namespace quire::conformance
