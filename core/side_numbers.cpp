// SPDX-License-Identifier: Apache-2.0

#include "side_numbers.hpp"

#include <cstring>

#include "slot.hpp"

namespace quire {

namespace {

// A queue and a fence of a device, for as long as one copy takes.
class Errand {
 public:
    explicit Errand(const Device &device) : device_(device) {}
    ~Errand() {
        if (fence_ != nullptr) tell<&quire_backend_api::fence_destroy>(*device_.api, fence_);
        if (queue_ != nullptr) tell<&quire_backend_api::queue_release>(*device_.api, queue_);
    }
    Errand(const Errand &) = delete;
    Errand &operator=(const Errand &) = delete;

    Status run(const quire_be_copy &copy, quire_error *error) {
        const quire_backend_api &api = *device_.api;
        const quire_native none{};
        QUIRE_TRY(ask<&quire_backend_api::queue_bind>(api, error, device_.handle, &none, &queue_));
        if (queue_ == nullptr) return slot_lied(api, error, "queue_bind gave no queue");
        QUIRE_TRY(ask<&quire_backend_api::fence_create>(api, error, device_.handle, uint64_t{0},
                                                        &fence_));
        if (fence_ == nullptr) return slot_lied(api, error, "fence_create gave no fence");
        QUIRE_TRY(ask<&quire_backend_api::copy>(api, error, queue_, &copy, uint32_t{1}));
        QUIRE_TRY(ask<&quire_backend_api::fence_signal>(api, error, queue_, fence_, uint64_t{1}));
        Status waited =
            ask<&quire_backend_api::fence_wait_host>(api, error, fence_, uint64_t{1}, UINT64_MAX);
        if (waited.code != QUIRE_S_TIMEOUT) return waited;
        return slot_lied(api, error, "fence_wait_host timed out of a wait without an end");
    }

 private:
    const Device &device_;
    quire_be_queue *queue_ = nullptr;
    quire_be_fence *fence_ = nullptr;
};

}  // namespace

void SideNumbers::clear() {
    if (address_ != 0) free_memory(*device_, address_, size_bytes_, QUIRE_BE_MEMORY_DEVICE);
    if (host_address_ != 0) {
        free_memory(*device_, host_address_, size_bytes_, QUIRE_BE_MEMORY_HOST);
    }
    address_ = host_address_ = 0;
    host_ = nullptr;
}

Status SideNumbers::create(const Device *device, uint64_t count, quire_error *error) {
    device_ = device;
    size_bytes_ = count * sizeof(float);  // below 2^48: 4,096 layers, 2^32 heads, two sides
    void *pointer = nullptr;
    QUIRE_TRY(
        allocate_memory(*device, size_bytes_, QUIRE_BE_MEMORY_DEVICE, &address_, &pointer, error));
    QUIRE_TRY(allocate_memory(*device, size_bytes_, QUIRE_BE_MEMORY_HOST, &host_address_, &pointer,
                              error));
    host_ = static_cast<float *>(pointer);
    std::memset(host_, 0, size_bytes_);
    return Status{};
}

Status SideNumbers::copy(bool is_up, quire_error *error) {
    quire_be_copy copy{};
    copy.dst = is_up ? address_ : host_address_;
    copy.src = is_up ? host_address_ : address_;
    copy.size_bytes = size_bytes_;
    copy.kind = is_up ? QUIRE_BE_COPY_H2D : QUIRE_BE_COPY_D2H;
    return Errand(*device_).run(copy, error);
}

Status SideNumbers::upload(quire_error *error) { return copy(true, error); }
Status SideNumbers::download(quire_error *error) { return copy(false, error); }

}  // namespace quire
