// SPDX-License-Identifier: Apache-2.0

#include "core/device/device_floats.hpp"

#include <cstring>

#include "core/device/backend_call.hpp"
#include "core/device/counted_queue.hpp"

namespace quire {

void DeviceFloats::clear() {
    if (address_ != 0) free_memory(*device_, address_, size_bytes_, QUIRE_BE_MEMORY_DEVICE);
    if (host_address_ != 0) {
        free_memory(*device_, host_address_, size_bytes_, QUIRE_BE_MEMORY_HOST);
    }
    address_ = host_address_ = 0;
    host_ = nullptr;
}

Status DeviceFloats::create(const Device *device, uint64_t count, quire_error *error) {
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

Status DeviceFloats::copy(bool is_up, quire_error *error) {
    quire_be_copy copy{};
    copy.dst = is_up ? address_ : host_address_;
    copy.src = is_up ? host_address_ : address_;
    copy.size_bytes = size_bytes_;
    copy.kind = is_up ? QUIRE_BE_COPY_H2D : QUIRE_BE_COPY_D2H;
    // Whatever fails, the queue is settled before the memory can be freed.
    CountedQueue queue;
    uint64_t done = 0;
    QUIRE_TRY(queue.create(device_, error));
    QUIRE_TRY(queue.copy(&copy, 1, error));
    QUIRE_TRY(queue.mark(&done, error));
    return queue.wait(done, error);
}

Status DeviceFloats::upload(quire_error *error) { return copy(true, error); }
Status DeviceFloats::download(quire_error *error) { return copy(false, error); }

}  // namespace quire
