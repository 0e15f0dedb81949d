// SPDX-License-Identifier: Apache-2.0

#include "session.hpp"

#include <quire/dyn.h>

#include <charconv>
#include <chrono>
#include <cstring>
#include <string>

#include "tests/bench/machine/failure.hpp"

namespace quire::bench {

namespace {

const quire_api &library() {
    static const quire_api *api = [] {
        const quire_api *loaded = nullptr;
        char why[512] = "";
        if (quire_dyn_load(nullptr, &loaded, why, sizeof why) < 0) throw Failure(why);
        return loaded;
    }();
    return *api;
}

// The number after the colon of `place`; 0 if it has none.
uint32_t index_in(const std::string &place, size_t colon) {
    if (colon == std::string::npos) return 0;
    uint32_t index = 0;
    const char *begin = place.data() + colon + 1, *end = place.data() + place.size();
    auto [stop, code] = std::from_chars(begin, end, index);
    if (code == std::errc{} && stop == end) return index;
    throw Failure("--device: '" + place + "' is neither BACKEND nor BACKEND:INDEX");
}

}  // namespace

Session::Session(uint32_t threads, const std::string &place_name, uint32_t flags) : api(library()) {
    auto host = described<quire_instance_desc>();
    must(api.instance_create(&host, &instance, &error));
    auto place = described<quire_device_desc>();
    size_t colon = place_name.find(':');
    std::string backend = place_name.substr(0, colon);
    place.backend = backend.c_str();
    place.index = index_in(place_name, colon);
    place.threads = threads;
    place.flags = flags;
    must(api.device_open(instance, &place, &device, &error));
    clock_ = DeviceClock::make(backend, place.index);
    quire_native stream = clock_ != nullptr ? clock_->stream() : quire_native{};
    must(api.queue_create(device, clock_ != nullptr ? &stream : nullptr, &queue, &error));
}

// A failure here repeats one already reported, or does not matter because the process ends.
Session::~Session() {
    api.queue_destroy(queue, nullptr);
    api.device_close(device, nullptr);
    api.instance_destroy(instance, nullptr);
}

void Session::must(quire_status status) const {
    if (status == QUIRE_OK) return;
    if (status == QUIRE_E_UNSUPPORTED) throw Unsupported(error.message);
    if (status < 0) throw Failure(error.message);
    throw Failure("the library ran out of blocks or time: status " + std::to_string(status));
}

quire_device_info Session::info() const {
    auto info = described<quire_device_info>();
    must(api.device_get_info(device, &info, nullptr));
    return info;
}

WorkingSet Session::working_set(uint32_t scale) const {
    if (is_host_visible()) return bench::working_set(scale);
    // Four times 256 MiB, the largest cache of the GPUs that we know of (MI300X).
    constexpr uint64_t kBeyondCaches = uint64_t{1} << 30;
    return limited(kBeyondCaches / scale, info().memory_free_bytes / 2);
}

Memory Session::make(uint32_t kind, uint64_t size_bytes) {
    auto desc = described<quire_memory_desc>();
    desc.kind = kind;
    desc.size_bytes = size_bytes;
    quire_memory *memory = nullptr;
    must(api.memory_create(device, &desc, &memory, &error));
    auto made = described<quire_memory_info>();
    must(api.memory_get_info(memory, &made, &error));
    return {memory, made.address, static_cast<std::byte *>(made.host_pointer)};
}

Memory Session::make_activations(uint64_t size_bytes) {
    return is_host_visible() ? make_host_memory(size_bytes) : make_device_memory(size_bytes);
}

void Session::write(const Memory &memory, const std::vector<std::byte> &bytes) {
    bool is_reached = memory.bytes != nullptr;
    Memory staging = is_reached ? memory : make_host_memory(bytes.size());
    std::memcpy(staging.bytes, bytes.data(), bytes.size());
    if (is_reached) return;
    copy(memory, staging, bytes.size());
    sync();
    destroy(staging);
}

double Session::host_seconds_of(const std::function<void()> &enqueue) {
    auto begin = std::chrono::steady_clock::now();
    enqueue();
    sync();
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    return seconds.count();
}

double Session::seconds_of(const std::function<void()> &enqueue) {
    if (clock_ == nullptr) return host_seconds_of(enqueue);
    enqueue();
    clock_->start();
    enqueue();
    clock_->stop();
    sync();
    return clock_->seconds();
}

}  // namespace quire::bench
