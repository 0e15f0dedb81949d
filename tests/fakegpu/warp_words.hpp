// SPDX-License-Identifier: Apache-2.0
//
// warp_words: what the words of kernels/dialect_warp.hpp mean here. Layouts are those of the PTX
// ISA's drawings of ldmatrix, one lane and one element at a time.
//
// Threads: as simt.
#pragma once

#include "simt.hpp"

namespace fakegpu {

// The values that the warp's lanes give, by lane; valid until the thread's next collective.
const uint64_t *gather(uint64_t value, const Where &where);
// Copies of all but the thread's newest `groups` groups land.
void land_all_but(uint32_t groups);

inline void warp_barrier(Where where = Where::current()) { gather(0, where); }
inline uint64_t shuffle_from(uint64_t value, uint32_t lane, Where where = Where::current()) {
    count_access(Kind::shuffle, 0, 0, where);
    return gather(value, where)[lane % warp_width()];
}
template <uint32_t groups>
void wait_copies_but() {
    land_all_but(groups);
}

template <typename Unit, uint32_t count>
void land_unit(const LateCopy &copy) {
    auto &array = *static_cast<SharedArray<Unit, count> *>(copy.array);
    Unit unit = {};
    if (copy.from != 0) {
        std::memcpy(&unit, reach(copy.from, sizeof unit, sizeof unit, copy.where), sizeof unit);
    }
    array.put({copy.index, copy.where}, unit, copy.where);
}
// from: 0 for zeros.
template <typename Unit, uint32_t count>
void copy_unit_async(SharedArray<Unit, count> &to, uint32_t index, uint64_t from, Where where) {
    static_assert(sizeof(Unit) == 16);
    if (from != 0) count_access(Kind::global_copy, from, sizeof(Unit), where);
    count_access(Kind::shared_copy, to.address_of(index), sizeof(Unit), where);
    to.begin_write({index, where});
    begin_copy({land_unit<Unit, count>, &to, index, from, where});
}

// The sixteen-byte units that a warp's lanes name: rows of four matrices of 8 x 8 16-bit numbers,
// row j of matrix i by lane 8 i + j. A unit counts as read by the lane that names it.
template <typename Unit, uint32_t count>
class Rows {
 public:
    Rows(SharedArray<Unit, count> &from, uint32_t index, const Where &where)
        : mine_(from.take({index, where}, where)),
          rows_(gather(reinterpret_cast<uint64_t>(&mine_), where)),
          where_(where) {
        count_access(Kind::shared_matrix, from.address_of(index), sizeof(Unit), where);
    }
    Rows(const Rows &) = delete;
    ~Rows() { gather(0, where_); }  // until all lanes have read it

    uint32_t element(uint32_t matrix, uint32_t row, uint32_t column) const {
        uint16_t halves[8];
        std::memcpy(halves, reinterpret_cast<const void *>(rows_[8 * matrix + row]), sizeof halves);
        return halves[column];
    }

 private:
    Unit mine_;
    const uint64_t *rows_;
    Where where_;
};

template <typename Unit, uint32_t count>
void load_matrices(SharedArray<Unit, count> &from, uint32_t index, uint32_t (&to)[4],
                   Where where = Where::current()) {
    Rows<Unit, count> rows(from, index, where);
    uint32_t lane = thread_index() % 32, row = lane / 4, column = 2 * (lane % 4);
    for (uint32_t i = 0; i < 4; ++i) {
        to[i] = rows.element(i, row, column) | rows.element(i, row, column + 1) << 16;
    }
}
template <typename Unit, uint32_t count>
void load_matrices_turned(SharedArray<Unit, count> &from, uint32_t index, uint32_t (&to)[4],
                          Where where = Where::current()) {
    Rows<Unit, count> rows(from, index, where);
    uint32_t lane = thread_index() % 32, column = lane / 4, row = 2 * (lane % 4);
    for (uint32_t i = 0; i < 4; ++i) {
        to[i] = rows.element(i, row, column) | rows.element(i, row + 1, column) << 16;
    }
}

inline uint32_t turn_matrix(uint32_t pair, Where where = Where::current()) {
    count_access(Kind::shuffle, 0, 0, where);
    const uint64_t *pairs = gather(pair, where);
    uint32_t lane = thread_index() % 32, column = lane / 4, row = 2 * (lane % 4);
    auto element = [&](uint32_t of_row) {
        return static_cast<uint32_t>(pairs[4 * of_row + column / 2]) >> (column % 2 * 16) & 0xFFFFu;
    };
    return element(row) | element(row + 1) << 16;
}

}  // namespace fakegpu
