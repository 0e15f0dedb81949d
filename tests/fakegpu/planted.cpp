// SPDX-License-Identifier: Apache-2.0
//
// planted: what tests make the machine do wrong: calls that fail, do nothing or wait, and lanes
// that take their time.
//
// Threads: any.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "machine.hpp"

namespace fakegpu {

namespace {

struct Plant {
    std::string name;  // "": any function
    uint64_t before = 0;
    uint64_t count = 0;
    uint64_t hits = 0;

    void set(const char *of, uint64_t nth, uint64_t how_many) {
        name = of == nullptr ? "" : of;
        before = nth == 0 ? 0 : nth - 1;
        count = nth == 0 ? 0 : how_many;
    }
    bool hit(const char *called) {
        if (count == 0 || (!name.empty() && name != called)) return false;
        if (before != 0) {
            --before;
            return false;
        }
        --count;
        ++hits;
        return true;
    }
};

std::mutex mutex;
Plant failing, left_out;
int fail_result = 0;
bool is_breaking = false;  // the call that fails also breaks the device
std::condition_variable hold_changed;
std::string held_name;  // "": none
uint64_t held_calls = 0;
std::atomic<uint64_t> most_dawdle_us{0};
std::atomic<bool> is_paused{false};
std::atomic<uint64_t> dice{1};  // not one per thread: a copied library has little room for those

}  // namespace

int planted_result(const char *name) {
    if (is_paused.load()) return 0;
    std::lock_guard lock(mutex);
    if (!failing.hit(name)) return 0;
    if (is_breaking) fakegpu_break(fail_result);
    return fail_result;
}

void wait_if_held(const char *name) {
    std::unique_lock lock(mutex);
    if (held_name.empty() || held_name != name) return;
    ++held_calls;
    hold_changed.wait(lock, [&] { return held_name != name; });
    --held_calls;
}

bool is_left_out(const char *name) {
    if (is_paused.load()) return false;
    std::lock_guard lock(mutex);
    return left_out.hit(name);
}

void dawdle() {
    uint64_t most_us = most_dawdle_us.load();
    if (most_us == 0) return;
    uint64_t drawn = dice.fetch_add(0x9E3779B97F4A7C15) >> 20;
    if (drawn % 4 != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(drawn / 4 % most_us));
}

}  // namespace fakegpu

using namespace fakegpu;

void fakegpu_fail(const char *name, uint64_t nth, int result) {
    std::lock_guard lock(mutex);
    failing.set(name, nth, 1);
    fail_result = result;
    is_breaking = false;
}

void fakegpu_fail_run(const char *name, uint64_t nth, uint64_t count, int result) {
    std::lock_guard lock(mutex);
    failing.set(name, nth, count);
    fail_result = result;
    is_breaking = result == kIllegalAddress || result == kLaunchFailure;
}

uint64_t fakegpu_failed(void) {
    std::lock_guard lock(mutex);
    return failing.hits;
}

void fakegpu_leave_out(const char *name, uint64_t nth, uint64_t count) {
    std::lock_guard lock(mutex);
    left_out.set(name, nth, count);
}

uint64_t fakegpu_left_out(void) {
    std::lock_guard lock(mutex);
    return left_out.hits;
}

void fakegpu_hold(const char *name) {
    std::lock_guard lock(mutex);
    held_name = name == nullptr ? "" : name;
    hold_changed.notify_all();
}

uint64_t fakegpu_held(void) {
    std::lock_guard lock(mutex);
    return held_calls;
}

void fakegpu_pause(int paused) { is_paused.store(paused != 0); }
void fakegpu_dawdle(uint64_t most_us) { most_dawdle_us.store(most_us); }
