// SPDX-License-Identifier: Apache-2.0

#include "devices.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "library.hpp"

namespace quire::cli {

namespace {

nlohmann::ordered_json describe_device(quire_instance *instance, const char *backend,
                                       uint32_t index) {
    const quire_api &api = library();
    Error error;
    auto desc = described<quire_device_desc>();
    desc.backend = backend;
    desc.index = index;
    desc.flags = QUIRE_DEVICE_FAST_16BIT;  // to report whether the device offers it
    nlohmann::ordered_json out;
    out["index"] = index;
    quire_device *device = nullptr;
    if (api.device_open(instance, &desc, &device, &error) < 0) {
        out["error"] = error.message;
        return out;
    }
    auto info = described<quire_device_info>();
    check(api.device_get_info(device, &info, &error), error);
    out["name"] = info.name;
    out["fast_16bit"] = (info.flags & QUIRE_DEVICE_FAST_16BIT) != 0;
    out["memory_total_bytes"] = info.memory_total_bytes;
    out["memory_free_bytes"] = info.memory_free_bytes;
    api.device_close(device, nullptr);
    return out;
}

nlohmann::ordered_json describe_backend(quire_instance *instance, uint32_t index) {
    const quire_api &api = library();
    Error error;
    auto info = described<quire_backend_info>();
    check(api.backend_get_info(instance, index, &info, &error), error);
    nlohmann::ordered_json out;
    out["name"] = info.name;
    out["path"] = info.path;
    out["loaded"] = info.status >= 0;
    if (info.status < 0) {
        out["reason"] = info.message;
        return out;
    }
    out["version"] = info.version;
    if (info.message[0] != 0) out["reason"] = info.message;
    out["devices"] = nlohmann::ordered_json::array();
    for (uint32_t d = 0; d < info.device_count; ++d) {
        out["devices"].push_back(describe_device(instance, info.name, d));
    }
    return out;
}

void print_backend(const nlohmann::ordered_json &backend) {
    std::string name = backend["name"], path = backend["path"];
    if (!backend["loaded"].get<bool>()) {
        std::printf("%-10s not loaded: %s\n%-10s   %s\n", name.c_str(),
                    backend["reason"].get<std::string>().c_str(), "", path.c_str());
        return;
    }
    std::printf("%-10s %s, %zu device%s\n%-10s   %s\n", name.c_str(),
                backend["version"].get<std::string>().c_str(), backend["devices"].size(),
                backend["devices"].size() == 1 ? "" : "s", "", path.c_str());
    if (backend.contains("reason")) {
        std::printf("%-10s   %s\n", "", backend["reason"].get<std::string>().c_str());
    }
    for (const auto &device : backend["devices"]) {
        int index = device["index"];
        if (device.contains("error")) {
            std::printf("  %d  %s\n", index, device["error"].get<std::string>().c_str());
            continue;
        }
        constexpr double gib = 1024.0 * 1024 * 1024;
        std::printf("  %d  %s, %.1f of %.1f GiB free\n", index,
                    device["name"].get<std::string>().c_str(),
                    device["memory_free_bytes"].get<double>() / gib,
                    device["memory_total_bytes"].get<double>() / gib);
    }
}

}  // namespace

void devices(bool json) {
    Instance instance;
    Error error;
    uint32_t count = 0;
    check(library().backend_count(instance.get(), &count, &error), error);
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (uint32_t i = 0; i < count; ++i) out.push_back(describe_backend(instance.get(), i));
    if (count == 0) std::fprintf(stderr, "%s\n", why_no_backend(instance.get()).c_str());
    if (json) {
        std::printf("%s\n", out.dump(2).c_str());
        return;
    }
    for (const auto &backend : out) print_backend(backend);
}

}  // namespace quire::cli
