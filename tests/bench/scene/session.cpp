// SPDX-License-Identifier: Apache-2.0

#include "session.hpp"

#include <quire/dyn.h>

#include <chrono>
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

}  // namespace

Session::Session(uint32_t threads, const std::string &place_name, uint32_t flags) : api(library()) {
    auto host = described<quire_instance_desc>();
    must(api.instance_create(&host, &instance, &error));
    auto place = described<quire_device_desc>();
    std::string backend = place_name.substr(0, place_name.find(':'));
    place.backend = backend.c_str();
    if (backend.size() < place_name.size()) {
        place.index = static_cast<uint32_t>(std::stoul(place_name.substr(backend.size() + 1)));
    }
    place.threads = threads;
    place.flags = flags;
    must(api.device_open(instance, &place, &device, &error));
    must(api.queue_create(device, nullptr, &queue, &error));
}

// What fails here failed before and was said, or ends with the process.
Session::~Session() {
    api.queue_destroy(queue, nullptr);
    api.device_close(device, nullptr);
    api.instance_destroy(instance, nullptr);
}

void Session::must(quire_status status) const {
    if (status == QUIRE_OK) return;
    if (status == QUIRE_E_UNSUPPORTED) throw Unsupported(error.message);
    if (status < 0) throw Failure(error.message);
    throw Failure("the library is short of blocks or time: status " + std::to_string(status));
}

bool Session::is_host_visible() const {
    auto info = described<quire_device_info>();
    must(api.device_get_info(device, &info, nullptr));
    return info.host_visible != 0;
}

std::string Session::device_name() const {
    auto info = described<quire_device_info>();
    must(api.device_get_info(device, &info, nullptr));
    return info.name;
}

quire_memory *Session::make_device_memory(uint64_t size_bytes) {
    auto desc = described<quire_memory_desc>();
    desc.kind = QUIRE_MEMORY_DEVICE;
    desc.size_bytes = size_bytes;
    quire_memory *memory = nullptr;
    must(api.memory_create(device, &desc, &memory, &error));
    return memory;
}

double Session::copy_seconds(quire_memory *to, quire_memory *from, uint64_t size_bytes) {
    auto begin = std::chrono::steady_clock::now();
    must(api.memory_copy(queue, to, 0, from, 0, size_bytes, &error));
    sync();
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    return seconds.count();
}

Activations Session::make_activations(uint64_t size_bytes) {
    auto desc = described<quire_memory_desc>();
    desc.kind = QUIRE_MEMORY_HOST;
    desc.size_bytes = size_bytes;
    quire_memory *memory = nullptr;
    must(api.memory_create(device, &desc, &memory, &error));
    auto info = described<quire_memory_info>();
    must(api.memory_get_info(memory, &info, &error));
    return {memory, info.address, static_cast<std::byte *>(info.host_pointer)};
}

}  // namespace quire::bench
