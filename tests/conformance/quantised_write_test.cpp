// SPDX-License-Identifier: Apache-2.0
//
// kv_write into pools of codes: the codes and the scales are exact to the bit, and
// no other byte changes.
//
// A NaN may be any NaN of its type; the tests compare only whether a value is one.

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "quire/cache.h"
#include "shapes.hpp"
#include "write_case.hpp"

namespace quire::conformance {

class QuantisedWriteTest : public SubjectTest {
 protected:
    QuantisedWriteTest() : SubjectTest(Needs::kv_write) {}
};

namespace {

constexpr uint32_t kStaticKinds[] = {QUIRE_SCALE_TENSOR, QUIRE_SCALE_HEAD};

PoolTypes same(uint32_t dtype, uint32_t kind) { return {dtype, dtype, kind, kind}; }

uint32_t bits_of_float(float value) { return std::bit_cast<uint32_t>(value); }

// A row of values to be encoded.
using Row = std::vector<float>;

float expected_scale(const Row &row, uint32_t dtype) {
    float largest = 0.0f;
    for (float value : row) {
        if (!std::isfinite(value)) return NAN;
        largest = std::fmax(largest, std::fabs(value));
    }
    return largest / static_cast<float>(largest_code_of(dtype));
}

void expect_codes(const Row &row, uint32_t dtype, float scale, bool is_own,
                  const unsigned char *stored, const std::string &what) {
    bool is_nothing = is_own && !(scale > 0.0f);
    for (uint32_t d = 0; d < row.size(); ++d) {
        double exact = is_nothing ? 0.0 : double{row[d] / scale};
        uint32_t code = bits_in_row(stored, dtype, d);
        if (std::isnan(exact) && std::isnan(decode(code, dtype))) continue;
        ASSERT_EQ(code, encode(exact, dtype))
            << what << ": element " << d << ", " << row[d] << " / " << scale;
    }
}

// Checks everything that one write left in the pool.
void expect_written(const WriteSpec &spec, const Written &written,
                    const std::vector<int64_t> &slots, const std::vector<Row> &k_rows,
                    const std::vector<Row> &v_rows, const std::string &what) {
    const quire_be_pool &pool = written.pool;
    std::vector<unsigned char> beside(written.bytes.size());
    for (uint64_t i = 0; i < beside.size(); ++i) beside[i] = Guarded::unwritten(i);
    auto forget = [&](int64_t at, int64_t size) {
        std::copy_n(written.bytes.begin() + at, size, beside.begin() + at);
    };
    bool is_latent = pool.group_kind == QUIRE_GROUP_LATENT;
    for (size_t r = 0; r < k_rows.size(); ++r) {
        int64_t slot = slots[r / pool.kv_heads];
        auto head = static_cast<uint32_t>(r % pool.kv_heads);
        if (slot < 0) continue;
        for (bool is_v : {false, true}) {
            if (is_v && is_latent) continue;
            const Row &row = is_v ? v_rows[r] : k_rows[r];
            uint32_t dtype = is_v ? pool.v_dtype : pool.k_dtype;
            uint32_t kind = is_v ? pool.v_scale_kind : pool.k_scale_kind;
            int64_t at = offset_of(pool, slot, head, is_v);
            forget(at, row_bytes(static_cast<uint32_t>(row.size()), dtype));
            float scale = 1.0f;
            if (kind == QUIRE_SCALE_TOKEN_HEAD) {
                int64_t scale_at = scale_offset_of(pool, slot, head, is_v);
                forget(scale_at, 4);
                std::memcpy(&scale, &written.bytes[static_cast<size_t>(scale_at)], 4);
                float expected = expected_scale(row, dtype);
                ASSERT_TRUE(std::isnan(expected) ? std::isnan(scale)
                                                 : bits_of_float(scale) == bits_of_float(expected))
                    << what << ": the scale is " << scale << " instead of " << expected;
            } else if (kind != QUIRE_SCALE_NONE) {
                scale = spec.scales[(is_v ? pool.kv_heads : 0) + head];
            }
            expect_codes(row, dtype, scale, kind == QUIRE_SCALE_TOKEN_HEAD,
                         &written.bytes[static_cast<size_t>(at)], what);
            if (testing::Test::HasFatalFailure()) return;
        }
    }
    EXPECT_TRUE(written.bytes == beside) << what << ": a byte outside the rows was written";
}

std::vector<uint32_t> bits_of(const std::vector<Row> &rows, uint32_t dtype) {
    std::vector<uint32_t> bits;
    for (const Row &row : rows) {
        for (float value : row) bits.push_back(encode(double{value}, dtype));
    }
    return bits;
}

// Rounds the rows as when they are given in that type.
void round_rows(uint32_t dtype, std::vector<Row> *rows) {
    for (Row &row : *rows) {
        for (float &value : row) {
            value = static_cast<float>(decode(encode(double{value}, dtype), dtype));
        }
    }
}

// Around every code and halfway to the next, times the scale, and at the limits of formats.
Row hard_values(uint32_t dtype, float scale) {
    Row values = {0.0f,    -0.0f,    INFINITY, -INFINITY, NAN,        -NAN,
                  FLT_MAX, -FLT_MAX, FLT_MIN,  0x1p-149f, -0x1p-149f, 1e9f};
    uint32_t codes = dtype == QUIRE_DTYPE_I4 ? 16 : 256;
    for (uint32_t code = 0; code < codes; ++code) {
        double value = decode(code, dtype);
        double next = decode((code + 1) % codes, dtype);
        if (!std::isfinite(value)) value = largest_code_of(dtype) * 1.07;
        if (!std::isfinite(next)) next = largest_code_of(dtype) * 1.15;
        for (double around : {value, (value + next) / 2}) {
            float given = static_cast<float>(around) * scale;
            values.push_back(given);
            values.push_back(std::nextafter(given, INFINITY));
            values.push_back(std::nextafter(given, -INFINITY));
        }
    }
    return values;
}

constexpr uint32_t kDim = 64;

// The values in rows of kDim, padded with zeros.
std::vector<Row> rows_of(const Row &values) {
    std::vector<Row> rows;
    for (size_t i = 0; i < values.size(); i += kDim) {
        rows.emplace_back(
            values.begin() + static_cast<ptrdiff_t>(i),
            values.begin() + static_cast<ptrdiff_t>(std::min(i + kDim, values.size())));
        rows.back().resize(kDim);
    }
    return rows;
}

// Rows with every property that matters for a row as a whole.
Row special_row(uint64_t seed, uint64_t index, uint32_t dim, uint32_t dtype) {
    Row row(dim);
    double size = std::exp2(20.0 * chance(seed, index, 31));
    for (uint32_t d = 0; d < dim; ++d) {
        row[d] = static_cast<float>(size * chance(seed, index, d, 32));
    }
    uint32_t place = static_cast<uint32_t>(mix(seed, index, 33) % dim);
    switch (mix(seed, index, 34) % 12) {
        case 0:
            std::fill(row.begin(), row.end(), index % 2 == 0 ? 0.0f : -0.0f);
            break;
        case 1:
            row[place] = index % 2 == 0 ? NAN : -INFINITY;
            break;
        case 2:  // subnormal, and so is the scale
            for (float &value : row) value *= static_cast<float>(0x1p-130 / size);
            break;
        case 3:  // so small that the scale is 0, or the last number above it
            for (float &value : row) value = index % 2 == 0 ? 0x1p-149f : -0x1p-143f;
            break;
        case 4:
            row[place] = -FLT_MAX;
            break;
        case 5:  // a scale of 1, and ties
            for (float &value : row) value = std::nearbyint(value) + 0.5f;
            row[place] = static_cast<float>(largest_code_of(dtype));
            for (float &value : row) {
                if (std::fabs(value) > largest_code_of(dtype)) value = 2.5f;
            }
            break;
        default:
            break;
    }
    return row;
}

// Random rows at random slots of a random pool.
void expect_random_writes(Rig &rig, const PoolTypes &types, uint64_t seed, uint32_t *run_count) {
    Dice dice(seed);
    WriteSpec spec;
    spec.shape = write_shape(types, dice.roll(1, 80), dice.pick({1u, 7u, 64u, dice.roll(1, 80)}));
    spec.shape.block_tokens = dice.pick({1u, 4u, 16u, dice.roll(1, 64)});
    spec.shape.kv_heads = dice.roll(1, 4);
    if (!is_offered(rig, spec.shape)) {
        spec.shape = write_shape(types, 64, 64);
        if (!is_offered(rig, spec.shape)) return;
    }
    ++*run_count;
    spec.dtype = dice.pick(kValueTypes);
    spec.layout = dice.roll(0, 1) == 0 ? Layout::head_major : Layout::token_major;
    spec.padding = dice.pick({0u, 1u, 3u});
    for (uint32_t i = 0; i < 2 * spec.shape.kv_heads; ++i) {
        spec.scales.push_back(static_cast<float>(std::exp2(3.0 * chance(seed, i, 35))));
    }
    std::vector<int64_t> slots;
    for (uint32_t s = 0; s < spec.block_count * spec.shape.block_tokens; ++s) {
        if (dice.roll(0, 2) == 0) slots.push_back(s);
        if (dice.roll(0, 9) == 0) slots.push_back(-1 - static_cast<int64_t>(s));
    }
    slots.push_back(INT64_MIN);
    std::vector<Row> k_rows, v_rows;
    for (uint64_t r = 0; r < slots.size() * spec.shape.kv_heads; ++r) {
        k_rows.push_back(special_row(seed, r, spec.shape.k_head_dim, types.k_dtype));
        v_rows.push_back(special_row(seed + 1000, r, spec.shape.v_head_dim, types.v_dtype));
    }
    round_rows(spec.dtype, &k_rows);
    round_rows(spec.dtype, &v_rows);
    Written written =
        write_tokens(rig, spec, slots, bits_of(k_rows, spec.dtype), bits_of(v_rows, spec.dtype));
    std::string what = std::string(name_of(types.k_dtype)) + " and " + name_of(types.v_dtype) +
                       ", seed " + std::to_string(seed);
    expect_written(spec, written, slots, k_rows, v_rows, what);
}

}  // namespace

TEST_F(QuantisedWriteTest, every_value_becomes_the_nearest_code_of_a_static_scale) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint32_t dtype : kCodeTypes) {
        for (uint32_t kind : kStaticKinds) {
            for (float scale : {1.0f, 0.37f, 0x1p-9f, 11.0f}) {
                WriteSpec spec;
                spec.shape = write_shape(same(dtype, kind), kDim, kDim);
                if (!is_offered(rig, spec.shape)) continue;
                ++run_count;
                // The other head's scale, and V's, are different.
                float other = kind == QUIRE_SCALE_HEAD ? 0.5f * scale : scale;
                spec.scales = {scale, other, 3.0f * scale, 3.0f * other};
                std::vector<Row> rows = rows_of(hard_values(dtype, scale));
                if (rows.size() % 2 != 0) rows.emplace_back(kDim, 1.0f);
                std::vector<int64_t> slots(rows.size() / 2);
                for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int64_t>(i);
                auto bits = bits_of(rows, spec.dtype);
                Written written = write_tokens(rig, spec, slots, bits, bits);
                expect_written(spec, written, slots, rows, rows, name_of(dtype));
                if (HasFatalFailure()) return;
            }
        }
    }
    if (run_count == 0) GTEST_SKIP() << "no pool of codes with static scales is offered";
}

TEST_F(QuantisedWriteTest, every_row_gets_its_own_scale_and_codes_whatever_is_in_it) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint32_t dtype : kCodeTypes) {
        for (uint64_t seed : seeds(1, 40, 8)) {
            expect_random_writes(rig, same(dtype, QUIRE_SCALE_TOKEN_HEAD), seed, &run_count);
            if (HasFatalFailure()) return;
        }
    }
    if (run_count == 0) GTEST_SKIP() << "no pool of codes with scales per token is offered";
}

TEST_F(QuantisedWriteTest, random_types_and_kinds_of_scales_land_in_their_slots) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint64_t seed : seeds(1, 120, 20)) {
        PoolTypes types = random_codes(seed);
        // Beside codes, values are compared as codes with a scale of 1, so as f32.
        if (types.k_scale_kind == QUIRE_SCALE_NONE) types.k_dtype = QUIRE_DTYPE_F32;
        if (types.v_scale_kind == QUIRE_SCALE_NONE) types.v_dtype = QUIRE_DTYPE_F32;
        expect_random_writes(rig, types, seed, &run_count);
        if (HasFatalFailure()) return;
    }
    if (run_count == 0) GTEST_SKIP() << "no pool of codes is offered";
}

TEST_F(QuantisedWriteTest, latent_row_has_one_scale_over_both_of_its_parts) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint32_t dtype : kCodeTypes) {
        for (auto [k_dim, v_dim] : {std::pair{576u, 512u}, {24u, 18u}, {32u, 32u}}) {
            WriteSpec spec;
            spec.shape = write_shape(same(dtype, QUIRE_SCALE_TOKEN_HEAD), k_dim, v_dim);
            spec.shape.kv_heads = 1;
            spec.shape.group_kind = QUIRE_GROUP_LATENT;
            if (!is_offered(rig, spec.shape)) continue;
            ++run_count;
            std::vector<int64_t> slots = {3, -1, 40, 17};
            std::vector<Row> rows, latents, rotated;
            for (uint64_t t = 0; t < slots.size(); ++t) {
                Row row;
                // The largest is in the first part of one row, and in the second part of the next.
                for (uint32_t d = 0; d < k_dim; ++d) {
                    double size = (d < v_dim) == (t % 2 == 0) ? 3.0 : 1.0;
                    row.push_back(static_cast<float>(size * chance(t, d, 36)));
                }
                rows.push_back(row);
                latents.emplace_back(row.begin(), row.begin() + v_dim);
                rotated.emplace_back(row.begin() + v_dim, row.end());
            }
            Written written = write_tokens(rig, spec, slots, bits_of(latents, spec.dtype),
                                           bits_of(rotated, spec.dtype));
            expect_written(spec, written, slots, rows, latents, name_of(dtype));
        }
    }
    if (run_count == 0) GTEST_SKIP() << "no latent pool of codes is offered";
}

// A turn by 0 changes nothing; an eighth of a turn maps (3, 3) to (0, 3 √2).
TEST_F(QuantisedWriteTest, key_is_turned_before_its_scale_is_taken) {
    if (api().plan_create == nullptr) GTEST_SKIP() << "plan_create is NULL";
    Rig rig;
    uint32_t run_count = 0;
    for (uint32_t dtype : kCodeTypes) {
        WriteSpec spec;
        spec.shape = write_shape(same(dtype, QUIRE_SCALE_TOKEN_HEAD), kDim, kDim);
        quire_be_plan_desc desc{};
        desc.struct_size = sizeof desc;
        desc.shape = spec.shape;
        desc.shape.q_heads = 2;
        desc.shape.q_dtype = QUIRE_DTYPE_F32;
        desc.shape.flags = QUIRE_BE_ATTENTION_ROPE;
        desc.shape.rotated_dim = 2;
        desc.max_rows = desc.max_query_tokens = desc.max_blocks_per_row = 1;
        float frequency = 0.78539816f;
        quire_be_rope rope = {sizeof rope, 1.0f, &frequency};
        desc.rope = &rope;
        if (!is_offered(rig, desc.shape)) continue;
        ++run_count;
        Error error;
        must(api().plan_create(rig.device(), &desc, &spec.plan, &error), error);
        std::vector<Row> rows;
        for (uint32_t r = 0; r < 4; ++r) {
            rows.emplace_back(kDim, 0.25f);
            rows.back()[0] = rows.back()[1] = 3.0f;
        }
        spec.positions = {0, 1};
        Written written =
            write_tokens(rig, spec, {5, 20}, bits_of(rows, spec.dtype), bits_of(rows, spec.dtype));
        api().plan_destroy(spec.plan);
        for (uint32_t r = 0; r < 2; ++r) {
            expect_codes(rows[r], dtype, expected_scale(rows[r], dtype), true,
                         &written.bytes[static_cast<size_t>(offset_of(written.pool, 5, r, false))],
                         "not turned");
            int64_t at = offset_of(written.pool, 20, r, false);
            float scale = 0.0f;
            std::memcpy(
                &scale,
                &written.bytes[static_cast<size_t>(scale_offset_of(written.pool, 20, r, false))],
                4);
            EXPECT_NEAR(scale * largest_code_of(dtype), 3.0 * std::sqrt(2.0), 1e-5)
                << name_of(dtype);
            const unsigned char *codes = &written.bytes[static_cast<size_t>(at)];
            EXPECT_NEAR(load_in_row(codes, dtype, 0), 0.0, 1e-2) << name_of(dtype);
            EXPECT_EQ(load_in_row(codes, dtype, 1), largest_code_of(dtype)) << name_of(dtype);
        }
    }
    if (run_count == 0) GTEST_SKIP() << "no rope over codes is offered";
}

}  // namespace quire::conformance
