// SPDX-License-Identifier: Apache-2.0
//
// simt: kernels on the host: a block's threads are fibers, run one after another between barriers.
//
// The emulator always detects what a real device only sometimes shows, and ends the
// launch with a message:
//   - an access outside device memory, or not aligned (memory.hpp);
//   - two threads of a block that touch one element of shared memory, one of them writing, without
//     a barrier between them, or within a warp a collective (a race);
//   - an element of shared memory read before it is written;
//   - a barrier that some threads do not reach, or where threads wait at different barriers;
//   - a warp collective in which a lane is missing;
//   - a block that shares more memory than its vendor lets code declare, or its launch asked for.
// Fibers always run in the same order, so a race is found by its marks (Shadow), not by its effect.
//
// If the launch has Counters, it also counts what each call site asks of memory (counters.hpp).
//
// Blocks of a launch run one after another on one thread; launches of several streams run in
// parallel. So races between blocks are not detected.
//
// Threads: functions called inside a kernel find their block in this thread's `running`.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>
#include <source_location>
#include <string>
#include <type_traits>

#include "counters.hpp"
#include "matrix_unit.hpp"
#include "memory.hpp"

namespace fakegpu {

// One kernel of the program, found by its name.
struct Kernel {
    using Entry = void (*)(const void *arguments);

    Kernel(const char *kernel_name, uint32_t kernel_threads, size_t kernel_argument_bytes,
           Entry kernel_entry);

    const char *name;
    uint32_t threads;
    size_t argument_bytes;
    Entry entry;
    const Kernel *next;
};
// NULL if there is none of this name.
const Kernel *find_kernel(const char *name);

struct Launch {
    const Kernel *kernel;
    const void *arguments;
    uint32_t groups_x;
    uint32_t groups_y;
    uint32_t warp_width;
    size_t shared_bytes = 48 << 10;  // that code may declare
    size_t asked_bytes = 0;          // by the launch, for large_shared_object()
    Counters *counters = nullptr;    // NULL: nothing is counted
    MatrixUnit unit = MatrixUnit::of_width;
};
// Runs every block. Empty, or what went wrong and where.
std::string run(const Launch &launch);

using Where = std::source_location;

// A thread's place in its block, in barriers and collectives passed. Accesses at different block
// times are ordered; between lanes of one warp, so are accesses at different warp times.
struct Time {
    uint32_t block = 0;
    uint32_t warp = 0;
};

// The running thread. Every access needs it, so it is found without a call.
struct Self {
    Time time;
    uint32_t index = 0;
    uint32_t warp = 0;
    Recorder *recorder = nullptr;  // NULL: nothing is counted
};
extern thread_local constinit Self self __attribute__((tls_model("initial-exec")));

// REQUIRES, for all below: called inside a kernel.
inline uint32_t thread_index() { return self.index; }
uint64_t group_index();
uint32_t warp_width();
[[noreturn]] void fault(const std::string &what, const Where &where);

// Counts the running lane's access, or its part in an instruction of the warp (`size_bytes` 0). An
// address in shared memory is the offset in the block's shared object as a GPU has it.
void count_here(Kind kind, uint64_t address, uint32_t size_bytes, const Where &where);
inline void count_access(Kind kind, uint64_t address, uint32_t size_bytes, const Where &where) {
    if (self.recorder != nullptr) [[unlikely]]
        count_here(kind, address, size_bytes, where);
}

void barrier(Where where = Where::current());
uint64_t exchange_xor(uint64_t value, uint32_t mask, const Where &where);
uint64_t ballot(bool vote, Where where = Where::current());
template <typename T>
T shuffle_xor(T value, uint32_t mask, Where where = Where::current()) {
    static_assert(sizeof(T) == 4);
    return __builtin_bit_cast(
        T, static_cast<uint32_t>(exchange_xor(__builtin_bit_cast(uint32_t, value), mask, where)));
}

// A lane's share of a 16 x 16 matrix of 16-bit numbers.
struct Fragment {
    uint16_t v[8];
};
#if defined(FAKEGPU_IS_HIP)
// AMD's GPUs with 32 lanes have none.
inline bool has_fragments(bool) { return warp_width() == 64; }
#else
constexpr bool has_fragments(bool) { return true; }
#endif
// sums += A B, for matrices that the warp's lanes hold as mma.sync m16n8k16 or MFMA 16x16x16
// require, rounded as the launch's unit rounds (matrix_unit.hpp). MI200's treats subnormal numbers
// as 0; flushes_subnormals() says so for f16.
void multiply_fragments(bool is_bf16, const Fragment &a, const Fragment &b, float *sums,
                        Where where = Where::current());
bool flushes_subnormals(bool is_bf16);
// As multiply_fragments() of f16, but keeps subnormal numbers.
void multiply_small_fragments(const Fragment &a, const Fragment &b, float *sums,
                              Where where = Where::current());

inline uint32_t pack_f16(float low, float high) {
    auto bits = [](float value) {
        return uint32_t{__builtin_bit_cast(uint16_t, static_cast<_Float16>(value))};
    };
    return bits(low) | bits(high) << 16;
}
inline uint32_t bytes_as_tops(uint32_t word, uint32_t pair) {
    uint32_t bytes = word >> (16 * pair);
    return (bytes & 0xFF) << 8 | (bytes & 0xFF00) << 16;
}
inline float f16_of(uint32_t bits) {
    return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(bits)));
}
inline uint32_t add_f16_pairs(uint32_t a, uint32_t b) {
    return pack_f16(f16_of(a) + f16_of(b), f16_of(a >> 16) + f16_of(b >> 16));
}
inline uint32_t multiply_f16_pairs(uint32_t a, uint32_t b) {
    return pack_f16(f16_of(a) * f16_of(b), f16_of(a >> 16) * f16_of(b >> 16));
}
inline uint32_t multiply_bf16_pairs(uint32_t a, uint32_t b) {
    auto product = [](uint32_t left, uint32_t right) {
        return __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, left << 16) *
                                                __builtin_bit_cast(float, right << 16)) >>
               16;
    };
    return product(a, b) | product(a >> 16, b >> 16) << 16;
}
// GPUs with the instruction do not need its replacement, which is what runs here.
constexpr bool has_e4m3_to_f16() { return false; }
inline uint32_t e4m3_to_f16(uint32_t) { return 0; }

// A copy of 16 bytes into shared memory, which lands only when its thread waits. Once it has begun,
// its destination must not be read or written.
struct LateCopy {
    void (*land)(const LateCopy &copy);
    void *array;
    uint32_t index;
    uint64_t from;
    Where where;
    uint32_t group = 0;
};
void begin_copy(const LateCopy &copy);
void end_copies();
void wait_older_copies();
void wait_copies();

// The last thread that touched an element, and how.
struct Shadow {
    static constexpr uint32_t kNobody = UINT32_MAX;
    static constexpr uint32_t kSeveral = UINT32_MAX - 1;

    uint32_t writer = kNobody;
    uint32_t reader = kNobody;
    uint32_t reading_warp = kNobody;  // kSeveral: lanes of several warps
    Time written;
    Time read;
    bool is_set = false;
    bool is_atomic = false;  // the last write was

    void note_read(const Where &where) {
        bool is_ordered = writer == self.index || written.block != self.time.block;
        if (!is_set || !is_ordered) judge_read(where);
        bool is_again = reader != kNobody && read.block == self.time.block;
        if (is_again && reader != self.index) {
            reader = kSeveral;
            reading_warp = reading_warp == self.warp ? self.warp : kSeveral;
        } else {
            reader = self.index;
            reading_warp = self.warp;
        }
        read = self.time;
    }
    void note_write(bool by_atomic, const Where &where);

 private:
    void judge_read(const Where &where) const;
};

// Adds an array's size on a GPU, where each array is aligned to 16 bytes; returns its offset there.
uint32_t note_shared(size_t size_bytes);

// Shared memory that records accesses. The elements hold poison until they are written.
template <typename T, uint32_t count>
class SharedArray {
    static_assert(std::is_trivially_copyable_v<T>);

 public:
    SharedArray() : offset_(note_shared(sizeof values_)) {
        std::memset(values_, 0xFF, sizeof values_);
    }

    class Element {
     public:
        Element(SharedArray &array, uint32_t index, const Where &where)
            : array_(array), index_(index), where_(where) {}
        Element(const Element &) = default;
        operator T() const {
            count_access(Kind::shared_load, array_.address_of(index_), sizeof(T), where_);
            array_.shadows_[index_].note_read(where_);
            return array_.values_[index_];
        }
        T operator=(T value) const {
            count_access(Kind::shared_store, array_.address_of(index_), sizeof(T), where_);
            return array_.put(index_, value, where_);
        }
        T operator=(const Element &other) const { return *this = static_cast<T>(other); }

     private:
        SharedArray &array_;
        uint32_t index_;
        Where where_;
    };

    struct Index {
        template <typename Number>
        Index(Number number, Where from = Where::current())
            : value(static_cast<uint64_t>(number)), where(from) {}
        uint64_t value;
        Where where;
    };

    Element operator[](Index index) {
        if (index.value >= count) {
            fault("shared memory: element " + std::to_string(index.value) + " of " +
                      std::to_string(count),
                  index.where);
        }
        return Element(*this, static_cast<uint32_t>(index.value), index.where);
    }

    // As an assignment, of which the caller counts several as one.
    T put(Index index, T value, const Where &where) {
        if (index.value >= count) (*this)[index];
        shadows_[index.value].note_write(false, where);
        return values_[index.value] = value;
    }
    // As a read, of which the caller counts several as one.
    T take(Index index, const Where &where) {
        if (index.value >= count) (*this)[index];
        shadows_[index.value].note_read(where);
        return values_[index.value];
    }
    uint64_t address_of(uint64_t index) const { return offset_ + index * sizeof(T); }
    void begin_write(Index index) {
        if (index.value >= count) (*this)[index];
        shadows_[index.value].note_write(false, index.where);
        shadows_[index.value].is_set = false;
    }
    void lower(uint32_t index, T value, const Where &where) {
        shadows_[index].note_write(true, where);
        if (value < values_[index]) values_[index] = value;
    }

 private:
    uint32_t offset_;  // in the block's shared object on a GPU
    T values_[count];
    Shadow shadows_[count];
};

template <uint32_t count>
void land_copy(const LateCopy &copy) {
    auto &array = *static_cast<SharedArray<uint16_t, count> *>(copy.array);
    uint16_t values[8];
    std::memcpy(values, reach(copy.from, sizeof values, sizeof values, copy.where), sizeof values);
    for (uint32_t i = 0; i < 8; ++i) array.put({copy.index + i, copy.where}, values[i], copy.where);
}
template <uint32_t count>
void store_eight(SharedArray<uint16_t, count> &to, uint32_t index, const uint32_t (&pairs)[4],
                 Where where = Where::current()) {
    if (index % 8 != 0) fault("a store of 16 bytes to an element that is not aligned", where);
    count_access(Kind::shared_store, to.address_of(index), 16, where);
    for (uint32_t i = 0; i < 8; ++i) {
        auto half = static_cast<uint16_t>(pairs[i / 2] >> (i % 2 * 16));
        to.put({index + i, where}, half, where);
    }
}
template <uint32_t count>
void copy_async(SharedArray<uint16_t, count> &to, uint32_t index, uint64_t from,
                Where where = Where::current()) {
    if (index % 8 != 0) fault("a copy of 16 bytes to an element that is not aligned", where);
    count_access(Kind::global_copy, from, 16, where);
    count_access(Kind::shared_copy, to.address_of(index), 16, where);
    for (uint32_t i = 0; i < 8; ++i) to.begin_write({index + i, where});
    begin_copy({land_copy<count>, &to, index, from, where});
}

template <uint32_t count>
void atomic_min(SharedArray<int32_t, count> &array, uint32_t index, int32_t value,
                Where where = Where::current()) {
    count_access(Kind::shared_atomic, array.address_of(index), sizeof value, where);
    array.lower(index, value, where);
}

// The block's single shared object, made anew for each block by the first thread that gets here.
// Its arrays count against what code may declare, or against what the launch asked for.
void *shared_memory(size_t size_bytes, bool *is_new);
void check_shared(bool is_asked_for, const Where &where);
template <typename T>
T &make_shared_object(bool is_asked_for, const Where &where) {
    bool is_new = false;
    void *memory = shared_memory(sizeof(T), &is_new);
    if (!is_new) return *static_cast<T *>(memory);
    T *made = new (memory) T;
    check_shared(is_asked_for, where);
    return *made;
}
template <typename T>
T &shared_object(Where where = Where::current()) {
    return make_shared_object<T>(false, where);
}
template <typename T>
T &large_shared_object(Where where = Where::current()) {
    return make_shared_object<T>(true, where);
}

// Global memory.
template <typename T>
T load(uint64_t address, Where where = Where::current()) {
    T value;
    count_access(Kind::global_load, address, sizeof(T), where);
    std::memcpy(&value, reach(address, sizeof(T), alignof(T), where), sizeof(T));
    return value;
}
template <typename T>
void store(uint64_t address, std::type_identity_t<T> value, Where where = Where::current()) {
    count_access(Kind::global_store, address, sizeof(T), where);
    std::memcpy(reach(address, sizeof(T), alignof(T), where), &value, sizeof(T));
}
struct alignas(16) FourWords {
    uint32_t v[4];
};
inline void system_fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

template <typename T>
T raise(uint64_t address, T value, const Where &where) {
    count_access(Kind::global_atomic, address, sizeof(T), where);
    T *at = static_cast<T *>(reach(address, sizeof(T), alignof(T), where));
    T before = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (before < value && !__atomic_compare_exchange_n(at, &before, value, false,
                                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return before;
}
inline uint32_t atomic_max(uint64_t address, uint32_t value, Where where = Where::current()) {
    return raise(address, value, where);
}
inline void system_atomic_max(uint64_t address, uint64_t value, Where where = Where::current()) {
    raise(address, value, where);
}
inline uint32_t atomic_swap_if(uint64_t address, uint32_t is, uint32_t value,
                               Where where = Where::current()) {
    count_access(Kind::global_atomic, address, sizeof is, where);
    auto *at = static_cast<uint32_t *>(reach(address, sizeof is, alignof(uint32_t), where));
    __atomic_compare_exchange_n(at, &is, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return is;
}

}  // namespace fakegpu
