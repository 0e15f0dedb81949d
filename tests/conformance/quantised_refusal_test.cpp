// SPDX-License-Identifier: Apache-2.0
//
// Refusals of pools of codes: scales that are missing, outside the pool, or of a kind that
// does not fit the type.

#include "quire/cache.h"
#include "shapes.hpp"
#include "write_case.hpp"

namespace quire::conformance {

class QuantisedRefusalTest : public SubjectTest {
 protected:
    QuantisedRefusalTest() : SubjectTest(Needs::kv_write) {}
};

namespace {

struct Spoilt {
    quire_status expected;
    const char *what;
    uint32_t kind;  // of the good pool's scales
    void (*spoil)(quire_be_pool &pool);
};

constexpr uint32_t kTensor = QUIRE_SCALE_TENSOR, kTokenHead = QUIRE_SCALE_TOKEN_HEAD;

const Spoilt kSpoilt[] = {
    {QUIRE_E_ARG, "K without scales", kTokenHead,
     [](auto &p) { p.k_scale_kind = QUIRE_SCALE_NONE; }},
    {QUIRE_E_ARG, "V without scales", kTensor, [](auto &p) { p.v_scale_kind = QUIRE_SCALE_NONE; }},
    {QUIRE_E_UNSUPPORTED, "an undefined kind", kTokenHead, [](auto &p) { p.k_scale_kind = 4; }},
    {QUIRE_E_ARG, "no static scales", kTensor, [](auto &p) { p.scales = 0; }},
    {QUIRE_E_ARG, "static scales between elements", kTensor, [](auto &p) { p.scales += 2; }},
    {QUIRE_E_ARG, "K's scales between elements", kTokenHead,
     [](auto &p) { p.k_scale_offset += 2; }},
    {QUIRE_E_ARG, "V's scales between elements", kTokenHead,
     [](auto &p) { p.v_scale_offset += 1; }},
    {QUIRE_E_ARG, "a head's scales between elements", kTokenHead,
     [](auto &p) { p.scale_head_stride += 2; }},
    {QUIRE_E_ARG, "a negative offset", kTokenHead, [](auto &p) { p.k_scale_offset = -4; }},
    {QUIRE_E_ARG, "a negative stride", kTokenHead, [](auto &p) { p.scale_head_stride = -64; }},
    {QUIRE_E_ARG, "scales past the end", kTokenHead,
     [](auto &p) { p.v_scale_offset = p.layer_stride; }},
    {QUIRE_E_ARG, "an overflowing offset", kTokenHead,
     [](auto &p) { p.k_scale_offset = INT64_MAX - 3; }},
    {QUIRE_E_ARG, "values with scales", kTokenHead, [](auto &p) { p.k_dtype = QUIRE_DTYPE_F16; }},
};

// A pool and a call with correct arguments only.
class GoodWrite {
 public:
    GoodWrite(Rig &rig, uint32_t dtype, uint32_t kind, uint32_t dim)
        : rig_(rig), memory_(rig, 4 << 20), pool(pool_of(dtype, kind, dim)) {
        pool.address = memory_.address();  // at most 3 * 3 * 16 * 2 * 2 * (64 * 2 + 4) bytes
        pool.scales = pool.address + (1 << 20);
        write.struct_size = sizeof write;
        write.layer = 1;
        write.token_count = 2;
        write.dtype = QUIRE_DTYPE_F32;
        write.pool = &pool;
        write.k = write.v = pool.address + (2 << 20);
        write.slots = pool.address + (3 << 20);
        write.k_token_stride = write.v_token_stride = int64_t{pool.kv_heads} * dim;
    }
    quire_status run(Error *error) { return api().kv_write(rig_.queue(), &write, error); }
    std::vector<unsigned char> read() { return rig_.read(memory_.address(), 1 << 20); }

 private:
    static quire_be_pool pool_of(uint32_t dtype, uint32_t kind, uint32_t dim) {
        auto shape = write_shape({dtype, dtype, kind, kind}, dim, dim);
        return make_pool(shape, Layout::head_major, 3, 3, 0);
    }

    Rig &rig_;
    Memory memory_;

 public:
    quire_be_pool pool;
    quire_be_kv_write write{};
};

// The first type of codes that the backend writes with this kind of scales; 0 if there is none.
uint32_t offered_type(Rig &rig, uint32_t kind) {
    for (uint32_t dtype : kCodeTypes) {
        if (is_offered(rig, write_shape({dtype, dtype, kind, kind}, 64, 64))) return dtype;
    }
    return 0;
}

}  // namespace

TEST_F(QuantisedRefusalTest, pool_whose_scales_are_not_right_is_refused_and_nothing_is_written) {
    Rig rig;
    uint32_t run_count = 0;
    for (const Spoilt &one : kSpoilt) {
        SCOPED_TRACE(one.what);
        uint32_t dtype = offered_type(rig, one.kind);
        if (dtype == 0) continue;
        ++run_count;
        GoodWrite call(rig, dtype, one.kind, 64);
        std::vector<unsigned char> before = call.read();
        one.spoil(call.pool);
        Error error;
        expect_refused(call.run(&error), error, one.expected);
        rig.sync();
        EXPECT_TRUE(call.read() == before);
    }
    if (run_count == 0) GTEST_SKIP() << "no pool of codes is offered";
}

TEST_F(QuantisedRefusalTest, odd_head_dim_of_two_elements_in_a_byte_is_refused) {
    Rig rig;
    PoolTypes types = {QUIRE_DTYPE_I4, QUIRE_DTYPE_I4, kTokenHead, kTokenHead};
    if (!is_offered(rig, write_shape(types, 64, 64))) GTEST_SKIP() << "no int4 pool is offered";
    GoodWrite call(rig, QUIRE_DTYPE_I4, kTokenHead, 64);
    call.pool.k_head_dim = 63;
    Error error;
    expect_refused(call.run(&error), error, QUIRE_E_ARG);
    call.pool.k_head_dim = 64;
    call.pool.v_head_dim = 61;
    expect_refused(call.run(&error), error, QUIRE_E_ARG);
}

TEST_F(QuantisedRefusalTest, codes_are_not_given_to_a_write) {
    Rig rig;
    uint32_t dtype = offered_type(rig, kTokenHead);
    if (dtype == 0) GTEST_SKIP() << "no pool of codes is offered";
    GoodWrite call(rig, dtype, kTokenHead, 64);
    call.write.dtype = dtype;
    Error error;
    expect_refused(call.run(&error), error, QUIRE_E_UNSUPPORTED);
}

}  // namespace quire::conformance
