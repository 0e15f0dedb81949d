// SPDX-License-Identifier: Apache-2.0
//
// activation: one layer's Q, K, V or result, in host memory that the device can reach too, so that
// the same loop serves every backend.
//
// The model computes with f32 and with heads of its own size. The device may be given another type
// and longer heads, whose further elements are zeros: pack() and unpack() convert. Where both are
// the same, `numbers` is the device's memory, and they do nothing.
//
// Threads: none; one thread calls, while no device reads or writes.

#pragma once

#include "quire/api.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace engine {

template <typename T>
struct Destroy {
    quire_status (*function)(T *, quire_error *) = nullptr;
    void operator()(T *object) const { function(object, nullptr); }
};
template <typename T>
using Owned = std::unique_ptr<T, Destroy<T>>;

// The types that queries and results may have: "f32", "f16", "bf16".
std::vector<std::string> q_dtype_names();
// REQUIRES: a name of these.
uint32_t q_dtype_of(const std::string &name);

// How the device sees a head.
struct HeadForm {
    uint32_t dtype = 0;     // QUIRE_DTYPE_F32, _F16 or _BF16
    size_t model_dim = 0;   // elements that the model computes
    size_t device_dim = 0;  // with the zeros after them

    size_t bytes() const { return device_dim * (dtype == QUIRE_DTYPE_F32 ? 4 : 2); }
    bool is_models_own() const { return dtype == QUIRE_DTYPE_F32 && device_dim == model_dim; }
};

class Activation {
 public:
    Activation() = default;
    // host_pointer  of `memory`, which has room for head_count heads of this form.
    Activation(Owned<quire_memory> memory, uint64_t address, void *host_pointer, HeadForm form,
               size_t head_count);

    uint64_t address() const { return address_; }
    // The model's side: [heads][model_dim].
    std::span<float> numbers() const { return numbers_; }

    // Gives the device the first `head_count` heads.
    void pack(size_t head_count) const;
    // Takes them from the device.
    void unpack(size_t head_count) const;
    // Frees the memory.
    void release() { *this = Activation(); }

 private:
    Owned<quire_memory> memory_;
    uint64_t address_ = 0;
    void *host_pointer_ = nullptr;
    HeadForm form_;
    std::unique_ptr<float[]> own_;
    std::span<float> numbers_;
};

}  // namespace engine
