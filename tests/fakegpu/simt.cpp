// SPDX-License-Identifier: Apache-2.0

#include "simt.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "fiber.hpp"
#include "warp_words.hpp"

namespace fakegpu {

namespace {

const Kernel *first_kernel = nullptr;

constexpr uint32_t kMostThreads = 1024;
constexpr uint32_t kMostLanes = 64;
constexpr size_t kMostSharedBytes = size_t{4} << 20;  // includes the shadows

enum class State { ready, at_barrier, in_collective, done };

struct Thread {
    Fiber fiber;
    uint32_t index = 0;
    State state = State::ready;
    Where where;
    uint64_t given = 0;  // to a collective
    std::vector<LateCopy> copies;
    uint32_t copy_group = 0;
};

// A warp's lanes, and the values gathered by the last collective.
struct Warp {
    uint32_t time = 0;
    uint64_t gathered[kMostLanes] = {};
    // The multiplied matrices, and when they were gathered.
    Term a[16][16];
    Term b[16][16];  // column by column
    uint32_t matrix_time = 0;
};

struct Block {
    const Launch *launch = nullptr;
    uint64_t group = 0;
    uint32_t time = 0;
    Thread threads[kMostThreads];
    Warp warps[kMostThreads / 32];
    Thread *current = nullptr;
    std::string wrong;
    Stacks stacks;
    std::unique_ptr<unsigned char[]> shared{new unsigned char[kMostSharedBytes]};
    size_t shared_bytes = 0;
    size_t noted_bytes = 0;  // by its arrays, as on a GPU
    Recorder *recorder = nullptr;
    MatrixUnit unit = MatrixUnit::of_width;

    uint32_t thread_count() const { return launch->kernel->threads; }
    uint32_t width() const { return launch->warp_width; }
    Warp &warp_of(const Thread &thread) { return warps[thread.index / width()]; }
};

thread_local Block *running = nullptr;

std::string line_of(const Where &where) {
    const char *name = where.file_name();
    for (const char *at = name; *at != 0; ++at) {
        if (*at == '/') name = at + 1;
    }
    return std::string(name) + ":" + std::to_string(where.line());
}

bool is_same(const Where &a, const Where &b) {
    return a.line() == b.line() && a.column() == b.column() &&
           std::strcmp(a.file_name(), b.file_name()) == 0;
}

std::string place_of(const Block &block) {
    return std::string("kernel ") + block.launch->kernel->name + ", block " +
           std::to_string(block.group);
}

void say_wrong(Block *block, const std::string &what) {
    if (block->wrong.empty()) block->wrong = what + " (" + place_of(*block) + ")";
}

void thread_main(void *argument) {
    auto *thread = static_cast<Thread *>(argument);
    const Launch *launch = running->launch;
    launch->kernel->entry(launch->arguments);
    if (!thread->copies.empty()) fault("a copy was never waited for", thread->copies[0].where);
    thread->state = State::done;
    thread->fiber.give_way();
}

void wait_as(State state, const Where &where) {
    Thread *thread = running->current;
    thread->state = state;
    thread->where = where;
    thread->fiber.give_way();
}

// Releases the lanes of a warp once all have reached one collective. False if none waits in one.
bool end_collective(Block *block, uint32_t first) {
    uint32_t end = std::min(first + block->width(), block->thread_count());
    Thread *waiting = nullptr;
    for (uint32_t i = first; i < end; ++i) {
        if (block->threads[i].state == State::in_collective) waiting = &block->threads[i];
    }
    if (waiting == nullptr) return false;
    Warp &warp = block->warp_of(*waiting);
    for (uint32_t i = first; i < end; ++i) {
        Thread &lane = block->threads[i];
        if (lane.state != State::in_collective || !is_same(lane.where, waiting->where)) {
            say_wrong(block, "warp collective at " + line_of(waiting->where) + ": lane " +
                                 std::to_string(i - first) + " is missing, it " +
                                 (lane.state == State::done ? std::string("has ended")
                                                            : "is at " + line_of(lane.where)));
            return true;
        }
        warp.gathered[i - first] = lane.given;
    }
    for (uint32_t i = first; i < end; ++i) block->threads[i].state = State::ready;
    if (block->recorder != nullptr) block->recorder->end_warp(first / block->width());
    ++warp.time;
    return true;
}

void end_warps(Block *block) {
    if (block->recorder == nullptr) return;
    uint32_t warps = (block->thread_count() + block->width() - 1) / block->width();
    for (uint32_t i = 0; i < warps; ++i) block->recorder->end_warp(i);
}

void end_barrier(Block *block) {
    Thread *waiting = nullptr;
    for (uint32_t i = 0; i < block->thread_count(); ++i) {
        if (block->threads[i].state == State::at_barrier) waiting = &block->threads[i];
    }
    for (uint32_t i = 0; i < block->thread_count(); ++i) {
        const Thread &thread = block->threads[i];
        if (thread.state == State::at_barrier && is_same(thread.where, waiting->where)) continue;
        say_wrong(block, "barrier at " + line_of(waiting->where) + ": thread " + std::to_string(i) +
                             " does not arrive, it " +
                             (thread.state == State::done ? std::string("has ended")
                                                          : "is at " + line_of(thread.where)));
        return;
    }
    for (uint32_t i = 0; i < block->thread_count(); ++i) block->threads[i].state = State::ready;
    end_warps(block);
    ++block->time;
}

// Runs each ready thread once; false if all have ended.
bool run_ready(Block *block) {
    bool are_done = true;
    for (uint32_t i = 0; i < block->thread_count() && block->wrong.empty(); ++i) {
        Thread &thread = block->threads[i];
        if (thread.state == State::ready) {
            block->current = &thread;
            uint32_t warp = i / block->width();
            self = {{block->time, block->warps[warp].time}, i, warp, block->recorder};
            thread.fiber.resume();
        }
        are_done = are_done && thread.state == State::done;
    }
    return !are_done;
}

void run_block(Block *block) {
    block->time = 0;
    block->shared_bytes = block->noted_bytes = 0;
    for (Warp &warp : block->warps) warp.time = warp.matrix_time = 0;
    for (uint32_t i = 0; i < block->thread_count(); ++i) {
        Thread &thread = block->threads[i];
        thread.index = i;
        thread.state = State::ready;
        thread.copies.clear();
        thread.copy_group = 0;
        thread.fiber.prepare(block->stacks.top(i), thread_main, &thread);
    }
    while (run_ready(block) && block->wrong.empty()) {
        bool has_collective = false;
        for (uint32_t i = 0; i < block->thread_count(); i += block->width()) {
            has_collective = end_collective(block, i) || has_collective;
        }
        if (!has_collective) end_barrier(block);
    }
    end_warps(block);
}

bool is_ordered(uint32_t other, Time then) {
    if (then.block != self.time.block || other == self.index) return true;
    if (other == Shadow::kSeveral) return false;
    return other / running->width() == self.warp && then.warp != self.time.warp;
}

[[noreturn]] void race(const char *how, uint32_t other, const Where &where) {
    fault(std::string("race: ") + how + " an element of shared memory that " +
              (other == Shadow::kSeveral ? std::string("several threads")
                                         : "thread " + std::to_string(other)) +
              " touched since the last barrier",
          where);
}

}  // namespace

Kernel::Kernel(const char *kernel_name, uint32_t kernel_threads, size_t kernel_argument_bytes,
               Entry kernel_entry)
    : name(kernel_name),
      threads(kernel_threads),
      argument_bytes(kernel_argument_bytes),
      entry(kernel_entry),
      next(first_kernel) {
    first_kernel = this;
}

const Kernel *find_kernel(const char *name) {
    for (const Kernel *kernel = first_kernel; kernel != nullptr; kernel = kernel->next) {
        if (std::strcmp(kernel->name, name) == 0) return kernel;
    }
    return nullptr;
}

std::string run(const Launch &launch) {
    static thread_local std::unique_ptr<Block> kept;
    if (kept == nullptr) kept = std::make_unique<Block>();
    Block *block = kept.get();
    block->launch = &launch;
    block->wrong.clear();
    block->stacks.reserve(launch.kernel->threads);
    std::unique_ptr<Recorder> recorder;
    if (launch.counters != nullptr) recorder = std::make_unique<Recorder>(launch.warp_width);
    block->recorder = recorder.get();
    block->unit =
        launch.unit == MatrixUnit::of_width ? chosen_unit(launch.warp_width) : launch.unit;
    running = block;
    uint64_t groups = uint64_t{launch.groups_x} * launch.groups_y;
    for (block->group = 0; block->group < groups && block->wrong.empty(); ++block->group) {
        run_block(block);
    }
    running = nullptr;
    if (recorder != nullptr) recorder->add_to(launch.counters, launch.kernel->name);
    return block->wrong;
}

thread_local constinit Self self;

uint64_t group_index() { return running->group; }
uint32_t warp_width() { return running->width(); }

void fault(const std::string &what, const Where &where) {
    say_wrong(running,
              what + ", thread " + std::to_string(thread_index()) + " at " + line_of(where));
    // The thread is not run again: the launch is over.
    for (;;) running->current->fiber.give_way();
}

void count_here(Kind kind, uint64_t address, uint32_t size_bytes, const Where &where) {
    self.recorder->note(self.warp, self.index % running->width(), kind, address, size_bytes, where);
}

void barrier(Where where) {
    count_access(Kind::barrier, 0, 0, where);
    wait_as(State::at_barrier, where);
}

uint64_t exchange_xor(uint64_t value, uint32_t mask, const Where &where) {
    count_access(Kind::shuffle, 0, 0, where);
    Thread *thread = running->current;
    thread->given = value;
    wait_as(State::in_collective, where);
    uint32_t lane = thread->index % running->width();
    return running->warp_of(*thread).gathered[(lane ^ mask) % running->width()];
}

void begin_copy(const LateCopy &copy) {
    running->current->copies.push_back(copy);
    running->current->copies.back().group = running->current->copy_group;
}

void end_copies() { ++running->current->copy_group; }

namespace {

void land_copies(uint32_t end_group) {
    std::vector<LateCopy> &copies = running->current->copies;
    size_t landed = 0;
    while (landed < copies.size() && copies[landed].group < end_group) {
        copies[landed].land(copies[landed]);
        ++landed;
    }
    copies.erase(copies.begin(), copies.begin() + static_cast<ptrdiff_t>(landed));
}

}  // namespace

void wait_older_copies() {
    uint32_t groups = running->current->copy_group;
    land_copies(groups == 0 ? 0 : groups - 1);
}
void wait_copies() { land_copies(UINT32_MAX); }
void land_all_but(uint32_t groups) {
    uint32_t ended = running->current->copy_group;
    land_copies(ended < groups ? 0 : ended - groups);
}

const uint64_t *gather(uint64_t value, const Where &where) {
    Thread *thread = running->current;
    thread->given = value;
    wait_as(State::in_collective, where);
    return running->warp_of(*thread).gathered;
}

uint64_t ballot(bool vote, Where where) {
    count_access(Kind::ballot, 0, 0, where);
    Thread *thread = running->current;
    thread->given = vote ? 1 : 0;
    wait_as(State::in_collective, where);
    uint64_t votes = 0;
    for (uint32_t i = 0; i < running->width(); ++i) {
        votes |= running->warp_of(*thread).gathered[i] << i;
    }
    return votes;
}

namespace {

// The lane and its element that hold an element of A or B, where `i` is one of 16 rows or columns
// and `k` one of 16 numbers, as drawn in the manuals.
struct Home {
    uint32_t lane, element;
};
Home home_of_a(uint32_t width, uint32_t i, uint32_t k) {
    if (width == 64) return {i + 16 * (k / 4), k % 4};
    return {i % 8 * 4 + k % 8 / 2, k % 2 + (i >= 8 ? 2 : 0) + (k >= 8 ? 4 : 0)};
}
Home home_of_b(uint32_t width, uint32_t i, uint32_t k) {
    if (width == 64) return {i + 16 * (k / 4), k % 4};
    return {i % 8 * 4 + k % 8 / 2, k % 2 + (k >= 8 ? 2 : 0) + (i >= 8 ? 4 : 0)};
}
Home home_of_sum(uint32_t width, uint32_t row, uint32_t column) {
    if (width == 64) return {column + 16 * (row / 4), row % 4};
    return {row % 8 * 4 + column % 8 / 2, column % 2 + (row >= 8 ? 2 : 0) + (column >= 8 ? 4 : 0)};
}

// The operands of one lane, in the lane's own frame.
struct Operands {
    const Fragment *a;
    const Fragment *b;
};

void gather_matrices(Warp &warp, uint32_t width, bool is_bf16, MatrixUnit unit) {
    for (uint32_t i = 0; i < 16; ++i) {
        for (uint32_t k = 0; k < 16; ++k) {
            Home a = home_of_a(width, i, k);
            Home b = home_of_b(width, i, k);
            auto *left = reinterpret_cast<const Operands *>(warp.gathered[a.lane])->a;
            auto *right = reinterpret_cast<const Operands *>(warp.gathered[b.lane])->b;
            warp.a[i][k] = term_of(unit, is_bf16, left->v[a.element]);
            warp.b[i][k] = term_of(unit, is_bf16, right->v[b.element]);
        }
    }
    warp.matrix_time = warp.time;
}

// As four instructions for f32 that take one k of each four add it, one product after another.
void add_in_fours(const Term *a, const Term *b, float *sum) {
    for (uint32_t i = 0; i < 4; ++i) {
        for (uint32_t k = i; k < 16; k += 4) *sum = std::fma(a[k].value, b[k].value, *sum);
    }
}

// The row and column of each sum that a lane holds.
struct Place {
    uint32_t row, column;
};
struct Places {
    Place of[kMostLanes][8];

    explicit Places(uint32_t width) {
        for (uint32_t row = 0; row < 16; ++row) {
            for (uint32_t column = 0; column < 16; ++column) {
                Home home = home_of_sum(width, row, column);
                of[home.lane][home.element] = {row, column};
            }
        }
    }
};

// Calls add() with the row of A and the column of B for each of this lane's sums.
template <typename Add>
void with_matrices(bool is_bf16, MatrixUnit unit, const Operands &mine, const Where &where,
                   Add add) {
    count_access(Kind::matrix, 0, 0, where);
    Thread *thread = running->current;
    thread->given = reinterpret_cast<uint64_t>(&mine);
    wait_as(State::in_collective, where);
    static const Places narrow(32), wide(64);
    uint32_t width = running->width();
    Warp &warp = running->warp_of(*thread);
    if (warp.matrix_time != warp.time) gather_matrices(warp, width, is_bf16, unit);
    const Places &places = width == 32 ? narrow : wide;
    for (uint32_t i = 0; i < 256 / width; ++i) {
        const Place &place = places.of[thread->index % width][i];
        add(i, warp.a[place.row], warp.b[place.column]);
    }
    // Operands must stay until all lanes have read them.
    wait_as(State::in_collective, where);
}

}  // namespace

bool flushes_subnormals(bool is_bf16) { return running->unit == MatrixUnit::mi200 && !is_bf16; }

void multiply_fragments(bool is_bf16, const Fragment &a, const Fragment &b, float *sums,
                        Where where) {
    MatrixUnit unit = running->unit;
    with_matrices(is_bf16, unit, {&a, &b}, where,
                  [&](uint32_t i, const Term *row, const Term *column) {
                      sums[i] = multiply_row(unit, is_bf16, row, column, sums[i]);
                  });
}

// Only MI200's kernels ask for it, and its f32 instruction keeps what another unit's terms hold.
void multiply_small_fragments(const Fragment &a, const Fragment &b, float *sums, Where where) {
    with_matrices(false, MatrixUnit::mi300, {&a, &b}, where,
                  [&](uint32_t i, const Term *row, const Term *column) {
                      add_in_fours(row, column, &sums[i]);
                  });
}

void Shadow::judge_read(const Where &where) const {
    if (!is_set) fault("shared memory is read before it is written", where);
    if (!is_ordered(writer, written)) race("reads", writer, where);
}

void Shadow::note_write(bool by_atomic, const Where &where) {
    bool are_both_atomic = by_atomic && is_atomic;
    if (writer != kNobody && !are_both_atomic && !is_ordered(writer, written)) {
        race("writes", writer, where);
    }
    bool is_after_warp = reading_warp == self.warp && read.warp != self.time.warp;
    if (reader != kNobody && !is_after_warp && !is_ordered(reader, read)) {
        race("writes", reader, where);
    }
    reader = kNobody;  // what comes after this write comes after those reads
    writer = are_both_atomic && writer != self.index ? kSeveral : self.index;
    written = self.time;
    is_set = true;
    is_atomic = by_atomic;
}

void *shared_memory(size_t size_bytes, bool *is_new) {
    if (size_bytes > kMostSharedBytes) {
        fault("a block shares " + std::to_string(size_bytes) + " bytes", Where::current());
    }
    *is_new = running->shared_bytes == 0;
    running->shared_bytes = size_bytes;
    return running->shared.get();
}

uint32_t note_shared(size_t size_bytes) {
    constexpr size_t kAlignment = 16;
    auto offset = static_cast<uint32_t>(running->noted_bytes);
    running->noted_bytes += (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
}

void check_shared(bool is_asked_for, const Where &where) {
    const Launch &launch = *running->launch;
    size_t most = is_asked_for ? launch.asked_bytes : launch.shared_bytes;
    if (running->noted_bytes <= most) return;
    fault("a block uses " + std::to_string(running->noted_bytes) + " bytes of shared memory, " +
              (is_asked_for ? "and asked for " : "and may use ") + std::to_string(most),
          where);
}

}  // namespace fakegpu
