// SPDX-License-Identifier: Apache-2.0
//
// fragment: 16 by 16 parts of matrices, and sums of their products, in three spellings:
//
//   QUIRE_FRAGMENTS_KHR  GL_KHR_cooperative_matrix
//   QUIRE_FRAGMENTS_NV   GL_NV_cooperative_matrix, its predecessor
//   neither              plain: a factor is a reference into `halves`, read when it is multiplied;
//                        a sum is spread over 32 lanes. Any device can run it, so that all code
//                        around it can be tested on any; it is no faster than other kernels.
//
// Factors are f16, eight to an element of `halves`; sums are f32 and are loaded from `weights` or
// start as no_sum(). Offsets and strides count elements of those arrays.
//
// REQUIRES: all lanes of a team (below) take part in each call; after a load, `halves` is written
// only after the product that uses the load, and a barrier.

#if defined(QUIRE_FRAGMENTS_KHR)

#pragma use_vulkan_memory_model
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

#define Left coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define Right coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define Sum coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>

Left load_left(uint at, uint stride) {
    Left part;
    coopMatLoad(part, halves, at, stride, gl_CooperativeMatrixLayoutRowMajor);
    return part;
}
Right load_right(uint at, uint stride) {
    Right part;
    coopMatLoad(part, halves, at, stride, gl_CooperativeMatrixLayoutRowMajor);
    return part;
}
Right load_right_turned(uint at, uint stride) {
    Right part;
    coopMatLoad(part, halves, at, stride, gl_CooperativeMatrixLayoutColumnMajor);
    return part;
}
Sum load_sum(uint at, uint stride) {
    Sum sum;
    coopMatLoad(sum, weights, at, stride, gl_CooperativeMatrixLayoutRowMajor);
    return sum;
}
void store_sum(Sum sum, uint at, uint stride) {
    coopMatStore(sum, weights, at, stride, gl_CooperativeMatrixLayoutRowMajor);
}
Sum no_sum() { return Sum(0.0); }
Sum add_product(Left left, Right right, Sum sum) { return coopMatMulAdd(left, right, sum); }

#elif defined(QUIRE_FRAGMENTS_NV)

#pragma use_vulkan_memory_model
#extension GL_NV_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

#define Left fcoopmatNV<16, gl_ScopeSubgroup, 16, 16>
#define Right fcoopmatNV<16, gl_ScopeSubgroup, 16, 16>
#define Sum fcoopmatNV<32, gl_ScopeSubgroup, 16, 16>

Left load_left(uint at, uint stride) {
    Left part;
    coopMatLoadNV(part, halves, at, stride, false);
    return part;
}
Right load_right(uint at, uint stride) { return load_left(at, stride); }
Right load_right_turned(uint at, uint stride) {
    Right part;
    coopMatLoadNV(part, halves, at, stride, true);
    return part;
}
Sum load_sum(uint at, uint stride) {
    Sum sum;
    coopMatLoadNV(sum, weights, at, stride, false);
    return sum;
}
void store_sum(Sum sum, uint at, uint stride) {
    coopMatStoreNV(sum, weights, at, stride, false);
}
Sum no_sum() { return Sum(0.0); }
Sum add_product(Left left, Right right, Sum sum) { return coopMatMulAddNV(left, right, sum); }

#endif

#if defined(QUIRE_FRAGMENTS_KHR) || defined(QUIRE_FRAGMENTS_NV)

// The lanes that share a fragment.
uint team() { return gl_SubgroupID; }
uint team_count() { return gl_NumSubgroups; }

#else

const uint kTeamLanes = 32;
const uint kSumElements = 256 / kTeamLanes;

uint team() { return lane() / kTeamLanes; }
uint team_count() { return kLanes / kTeamLanes; }

struct Left {
    uint at, stride;
};
struct Right {
    uint at, stride;
    bool is_turned;
};
struct Sum {
    float v[kSumElements];
};

Left load_left(uint at, uint stride) { return Left(at, stride); }
Right load_right(uint at, uint stride) { return Right(at, stride, false); }
Right load_right_turned(uint at, uint stride) { return Right(at, stride, true); }

float half_at(uint at, uint stride, uint row, uint column) {
    uint pair = halves[at + row * stride + column / 8][column / 2 % 4];
    return uintBitsToFloat(f16_to_f32(pair >> (column % 2 * 16) & 0xFFFFu));
}

// The lane's elements of a sum: one out of each run of 32 consecutive ones.
uint sum_row(uint i) { return (i * kTeamLanes + lane() % kTeamLanes) / 16; }
uint sum_column(uint i) { return lane() % 16; }

Sum load_sum(uint at, uint stride) {
    Sum sum;
    [[unroll]] for (uint i = 0; i < kSumElements; ++i) {
        sum.v[i] = weights[at + sum_row(i) * stride + sum_column(i)];
    }
    return sum;
}
void store_sum(Sum sum, uint at, uint stride) {
    [[unroll]] for (uint i = 0; i < kSumElements; ++i) {
        weights[at + sum_row(i) * stride + sum_column(i)] = sum.v[i];
    }
}
Sum no_sum() {
    Sum sum;
    [[unroll]] for (uint i = 0; i < kSumElements; ++i) sum.v[i] = 0.0;
    return sum;
}
Sum add_product(Left left, Right right, Sum sum) {
    for (uint k = 0; k < 16; ++k) {
        uint column = sum_column(0);
        float b = right.is_turned ? half_at(right.at, right.stride, column, k)
                                  : half_at(right.at, right.stride, k, column);
        [[unroll]] for (uint i = 0; i < kSumElements; ++i) {
            sum.v[i] += half_at(left.at, left.stride, sum_row(i), k) * b;
        }
    }
    return sum;
}

#endif
