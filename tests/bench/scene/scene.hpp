// SPDX-License-Identifier: Apache-2.0
//
// scene: a cache of several layers, its filled sequences, and a step whose attention is measured.
//
// The free blocks are put into random order before anything is filled, so that a table's blocks lie
// anywhere in the pool, as after hours of serving.
//
// Threads: none; the device has its own.
#pragma once

#include <string>
#include <vector>

#include "dtype.hpp"
#include "session.hpp"
#include "shape.hpp"

namespace quire::bench {

struct SceneDesc {
    Shape shape;
    Dtype dtype;
    uint32_t layers;
    uint32_t threads;
    uint32_t step_tokens;  // most new tokens of a sequence in a measured step
    std::string device = "cpu";
    uint32_t device_flags = 0;
};

// Seconds per layer.
struct Attended {
    double seconds;
    double call_seconds;  // the host's, to enqueue it
};

class Scene {
 public:
    // Errors   throws Unsupported or Failure with the library's message.
    explicit Scene(const SceneDesc &desc);
    ~Scene();
    Scene(const Scene &) = delete;
    Scene &operator=(const Scene &) = delete;

    // Adds `count` tokens to every sequence and writes their K and V, in as many steps as needed.
    void grow(uint32_t count);
    // Opens the measured step: as grow(), in one step that stays committed until it is closed.
    void open_step(uint32_t count);
    void close_step();
    // The host's, for the commit of the open step: tables, lengths and how attention is divided.
    double plan_seconds() const { return plan_seconds_; }
    // Attention of the open step in all layers, one after another.
    Attended attend();
    // The clock that times it: "device" or "host".
    const char *clock_name() const { return session_.clock_name(); }

    // Block ids of all rows, row after row.
    std::vector<int32_t> tables();
    quire_pool_info pool();
    bool is_host_visible() const { return session_.is_host_visible(); }
    // The type of q and results.
    uint32_t q_dtype() const { return q_dtype_; }

 private:
    void make_cache();
    void make_batch();
    void make_activations();
    // Memory that begins with `count` numbers of the type.
    Memory make_numbers(uint32_t dtype, uint64_t size_bytes, uint64_t count);
    void make_sequences();
    quire_step commit(uint32_t count);
    void write_layers();
    void enqueue_attention();
    void release();

    SceneDesc desc_;
    uint32_t step_rows_tokens_;  // new tokens over all rows for which the batch has room
    Session session_;
    uint32_t kv_dtype_, q_dtype_;  // types that kernels are given
    quire_cache *cache_ = nullptr;
    quire_batch *batch_ = nullptr;
    Memory kv_, queries_;
    uint64_t v_offset_ = 0, out_offset_ = 0;
    std::vector<quire_seq> sequences_;
    quire_step open_ = 0;
    double plan_seconds_ = 0, call_seconds_ = 0;  // of the last commit; of a layer's last call
};

}  // namespace quire::bench
