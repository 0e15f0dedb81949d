// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of device.h.

#include <bit>
#include <cstdio>

#include "abi/heap.hpp"
#include "abi/loader.hpp"
#include "abi/os.hpp"
#include "core/base/test_limits.hpp"

using namespace quire;
using namespace quire::abi;

namespace {

// A plugin stays loaded after its instance is destroyed, so its callbacks are the library's own.
void *host_allocate(void *, uint64_t size_bytes, uint64_t alignment) {
    HostAllocator host = default_allocator();
    return host.allocate(host.user, size_bytes, alignment);
}

void host_release(void *, void *pointer, uint64_t size_bytes, uint64_t alignment) {
    HostAllocator host = default_allocator();
    host.release(host.user, pointer, size_bytes, alignment);
}

void host_log(void *, int32_t, const char *, const char *) {}

// Messages to log after the instance's lock is released: a log callback may call the library.
using Said = std::vector<std::string>;

void log_to(const quire_instance *instance, int32_t level, const char *component,
            const std::string &message) {
    if (instance->log != nullptr)
        instance->log(instance->log_user, level, component, message.c_str());
}

constexpr quire_host_info kHostInfo{sizeof(quire_host_info),
                                    QUIRE_BACKEND_ABI_MAJOR,
                                    QUIRE_BACKEND_ABI_MINOR,
                                    0,
                                    nullptr,
                                    host_allocate,
                                    host_release,
                                    host_log};

template <size_t N>
void copy_text(char (&out)[N], const std::string &text) {
    std::snprintf(out, N, "%s", text.c_str());
}

void look_for_devices(Backend *backend, Said *said) {
    if (!probe(backend)) said->push_back(backend->path + ": " + backend->message);
}

// Runs the body under the instance's lock, then logs its messages, whether it succeeded or not.
template <typename Body>
Status with_backends(quire_instance *instance, Body body) {
    QUIRE_TRY(not_inherited(instance->process));
    Said said;
    Status status;
    {
        std::lock_guard<std::mutex> lock(instance->mutex);
        status = body(&said);
    }
    for (const std::string &words : said) log_to(instance, QUIRE_LOG_INFO, "loader", words);
    return status;
}

// is_given: the caller supplies the device, so the devices that the backend finds do not count.
Backend *choose_backend(quire_instance *instance, const char *name, bool is_given, Said *said) {
    for (const auto &backend : instance->backends) {
        if (name != nullptr && backend->name != name) continue;
        if (name == nullptr || !is_given) look_for_devices(backend.get(), said);
        if (backend->status < 0) continue;
        if (name != nullptr || backend->device_count != 0) return backend.get();
    }
    return nullptr;
}

std::string loaded_names(const quire_instance &instance) {
    std::string names;
    for (const auto &backend : instance.backends) {
        if (backend->status >= 0) names += (names.empty() ? "" : ", ") + backend->name;
    }
    return names.empty() ? "none" : names;
}

Status no_backend(const quire_instance *instance, const char *name, quire_error *error) {
    std::string words = name != nullptr ? std::string("no backend named \"") + name + "\" is loaded"
                                        : std::string("no loaded backend has a device");
    if (name != nullptr) {
        words += "; loaded: " + loaded_names(*instance);
        if (!instance->backends.empty())  // else it is said below
            words += "; QUIRE_PLUGIN_PATH names the directory of other quire_backend_*.so";
    }
    for (const auto &backend : instance->backends) {
        if (backend->status < 0) words += "; " + backend->path + ": " + backend->message;
    }
    if (instance->backends.empty()) {
        words +=
            ": no plugin was found; set QUIRE_PLUGIN_PATH to the absolute path of the directory of "
            "quire_backend_*.so; looked in";
        for (const std::string &directory : instance->searched) words += " " + directory;
    }
    copy_text(error->message, words);
    return fail(QUIRE_E_BACKEND, nullptr);
}

// The device's properties as the backend reports them; impossible values are refused.
Status read_props(const Device &device, quire_be_device_props *out, quire_error *error) {
    quire_be_device_props props{};
    props.struct_size = sizeof props;
    QUIRE_TRY(call<&quire_backend_api::device_props>(*device.api, error, device.handle, &props));
    if (props.memory_free_bytes > props.memory_total_bytes) {
        return function_lied(*device.api, error,
                             "device_props reports more free memory than total memory");
    }
    if (!std::has_single_bit(props.copy_alignment)) {
        return function_lied(*device.api, error,
                             "device_props has a copy_alignment that is not a power of 2");
    }
    if ((props.flags & ~device.flags) != 0) {
        return function_lied(*device.api, error, "device_props has flags that were not requested");
    }
    if (props.host_visible > 1) {
        return function_lied(*device.api, error, "device_props has a host_visible above 1");
    }
    props.name[sizeof props.name - 1] = '\0';
    *out = props;
    return Status{};
}

Status check_index(uint32_t index, const Backend &backend, bool is_given, quire_error *error) {
    if (is_given) {
        if (index == 0) return Status{};
        return fail(QUIRE_E_ARG, "index is {}: the chain names the device, so leave index 0",
                    index);
    }
    if (index < backend.device_count) return Status{};
    std::string words = "index is " + std::to_string(index) + ": the backend's device count is " +
                        std::to_string(backend.device_count);
    if (!backend.message.empty()) words += ": " + backend.message;
    copy_text(error->message, words);
    return fail(QUIRE_E_ARG, nullptr);
}

// REQUIRES: the instance's lock.
Status open_device(quire_instance *instance, const quire_device_desc &desc, quire_device **out,
                   Said *said, quire_error *error) {
    quire_vulkan_device vulkan;
    bool is_given = find_chained(desc.next, &vulkan);
    Backend *backend = choose_backend(instance, desc.backend, is_given, said);
    if (backend == nullptr) return no_backend(instance, desc.backend, error);
    copy_text(error->backend, backend->name);
    QUIRE_TRY(check_index(desc.index, *backend, is_given, error));
    const FunctionInfo *function = missing_function(backend->api);
    if (function != nullptr) {
        copy_text(error->message,
                  "backend \"" + backend->name + "\" has no function " + function->name);
        return fail(QUIRE_E_UNSUPPORTED, nullptr);
    }
    if (!os::remember_process()) return fail(QUIRE_E_OS, "the system has no MADV_WIPEONFORK");
    QUIRE_TRY(not_forked());
    auto device = std::make_unique<quire_device>();
    device->instance = instance;
    device->backend = backend;
    device->core.api = &backend->api;
    device->core.flags = desc.flags;
    quire_be_device_desc asked_for{};
    asked_for.struct_size = sizeof asked_for;
    static_assert(uint32_t{QUIRE_BE_DEVICE_PIN_THREADS} == QUIRE_DEVICE_PIN_THREADS);
    static_assert(uint32_t{QUIRE_BE_DEVICE_FAST_16BIT} == QUIRE_DEVICE_FAST_16BIT);
    static_assert(uint32_t{QUIRE_BE_DEVICE_INLINE} == QUIRE_DEVICE_INLINE);
    asked_for.flags = desc.flags;
    asked_for.index = desc.index;
    asked_for.threads = desc.threads;
    asked_for.run_tasks = desc.run_tasks;
    asked_for.run_tasks_user = desc.run_tasks_user;
    if (is_given) asked_for.next = reinterpret_cast<const quire_chain *>(&vulkan);
    const quire_be_device_desc *passed = &asked_for;
    QUIRE_TRY(
        call<&quire_backend_api::device_open>(backend->api, error, passed, &device->core.handle));
    if (device->core.handle == nullptr) {
        return function_lied(backend->api, error, "device_open returned no device");
    }
    Status asked = read_props(device->core, &device->core.props, error);
    if (!asked.ok()) {
        call_void<&quire_backend_api::device_close>(backend->api, device->core.handle);
        return asked;
    }
    ++backend->open_devices;
    ++instance->children;
    *out = device.release();
    return Status{};
}

}  // namespace

extern "C" {

quire_status quire_instance_create(const quire_instance_desc *desc, quire_instance **out,
                                   quire_error *error) {
    return guard("instance_create", error, [&](quire_error *) -> Status {
        quire_instance_desc full;
        QUIRE_TRY(read(desc, &full));
        QUIRE_TRY(need(out, "out is NULL"));
        if ((full.allocate == nullptr) != (full.release == nullptr)) {
            return fail(QUIRE_E_ARG, "allocate and release must be given together");
        }
#ifdef QUIRE_TEST_LIMITS
        const char *limits = os::environment("QUIRE_TEST_LIMITS");
        if (limits != nullptr && !set_test_limits(limits)) {
            return fail(QUIRE_E_ARG, "QUIRE_TEST_LIMITS is invalid: see core/test_limits.cpp");
        }
#endif
        wake_unwinder();
        throw_broken_invariants();
        auto instance = std::make_unique<quire_instance>();
        instance->host = full.allocate != nullptr
                             ? HostAllocator{full.allocate, full.release, full.allocator_user}
                             : default_allocator();
        instance->log = full.log;
        instance->log_user = full.log_user;
        instance->host_info = &kHostInfo;
        discover(instance.get(), full.plugin_path);
        for (const auto &backend : instance->backends) {
            if (backend->status >= 0) continue;
            log_to(instance.get(), QUIRE_LOG_INFO, "loader",
                   backend->path + ": " + backend->message);
        }
        *out = instance.release();
        return Status{};
    });
}

quire_status quire_instance_destroy(quire_instance *instance, quire_error *error) {
    return guard("instance_destroy", error, [&](quire_error *) -> Status {
        QUIRE_TRY(need(instance, "instance is NULL"));
        if (instance->children != 0) {
            return fail(QUIRE_E_BUSY, "devices and caches still exist, {} of them: end them first",
                        instance->children.load());
        }
        if (instance->has_abandoned) {
            keep_for_ever(&instance->kept);
        } else {
            delete instance;
        }
        return Status{};
    });
}

quire_status quire_backend_count(quire_instance *instance, uint32_t *count, quire_error *error) {
    return guard("backend_count", error, [&](quire_error *) -> Status {
        QUIRE_TRY(need(instance, "instance is NULL"));
        QUIRE_TRY(need(count, "count is NULL"));
        QUIRE_TRY(not_inherited(instance->process));
        std::lock_guard<std::mutex> lock(instance->mutex);
        *count = static_cast<uint32_t>(instance->backends.size());
        return Status{};
    });
}

quire_status quire_backend_get_info(quire_instance *instance, uint32_t index,
                                    quire_backend_info *info, quire_error *error) {
    return guard("backend_get_info", error, [&](quire_error *) -> Status {
        QUIRE_TRY(need(instance, "instance is NULL"));
        QUIRE_TRY(check_output(info));
        return with_backends(instance, [&](Said *said) -> Status {
            if (index >= instance->backends.size()) {
                return fail(QUIRE_E_ARG, "index is {}: only {} candidates were found", index,
                            instance->backends.size());
            }
            look_for_devices(instance->backends[index].get(), said);
            const Backend &backend = *instance->backends[index];
            quire_backend_info full{};
            full.status = backend.status;
            full.device_count = backend.device_count;
            full.abi_major = backend.api.abi_major;
            full.abi_minor = backend.api.abi_minor;
            copy_text(full.name, backend.name);
            copy_text(full.version, backend.version);
            copy_text(full.path, backend.path);
            copy_text(full.message, backend.message);
            write(full, info);
            return Status{};
        });
    });
}

quire_status quire_backend_load(quire_instance *instance, const char *path, uint32_t *index,
                                quire_error *error) {
    return guard("backend_load", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(need(instance, "instance is NULL"));
        QUIRE_TRY(need(path, "path is NULL"));
        QUIRE_TRY(need(index, "index is NULL"));
        return with_backends(instance, [&](Said *said) -> Status {
            Backend *backend = load_backend(instance, path);
            look_for_devices(backend, said);
            if (backend->status < 0) {
                copy_text(sink->message, backend->path + ": " + backend->message);
                Status status = fail(backend->status, nullptr);
                instance->backends.pop_back();
                return status;
            }
            *index = static_cast<uint32_t>(instance->backends.size()) - 1;
            return Status{};
        });
    });
}

quire_status quire_device_open(quire_instance *instance, const quire_device_desc *desc,
                               quire_device **out, quire_error *error) {
    return guard("device_open", error, [&](quire_error *sink) -> Status {
        quire_device_desc full;
        QUIRE_TRY(read(desc, &full));
        QUIRE_TRY(need(instance, "instance is NULL"));
        QUIRE_TRY(need(out, "out is NULL"));
        if (full.run_tasks != nullptr && (full.flags & QUIRE_DEVICE_PIN_THREADS) != 0) {
            return fail(QUIRE_E_ARG,
                        "QUIRE_DEVICE_PIN_THREADS with run_tasks: the engine must pin its own "
                        "threads");
        }
        return with_backends(instance, [&](Said *said) -> Status {
            return open_device(instance, full, out, said, sink);
        });
    });
}

quire_status quire_device_close(quire_device *device, quire_error *error) {
    return guard("device_close", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(need(device, "device is NULL"));
        QUIRE_TRY(check_kept(device));
        if (device->core.children != 0) {
            return fail(QUIRE_E_BUSY,
                        "queues, fences, memories and caches still exist, {} of them: end them "
                        "first",
                        device->core.children.load());
        }
        Backend *backend = device->backend;
        if (!os::forked()) {
            call_void<&quire_backend_api::device_close>(backend->api, device->core.handle);
            uint64_t live = 0;
            if (--backend->open_devices == 0 && backend->api.shutdown != nullptr) {
                Status status = call<&quire_backend_api::shutdown>(backend->api, sink, &live);
                if (!status.ok() || live != 0) {
                    log_to(device->instance, QUIRE_LOG_WARNING, backend->name.c_str(),
                           "the backend still holds objects after its last device was closed");
                }
            }
        }
        --device->instance->children;
        delete device;
        return Status{};
    });
}

quire_status quire_device_get_info(quire_device *device, quire_device_info *info,
                                   quire_error *error) {
    return guard("device_get_info", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(need(device, "device is NULL"));
        QUIRE_TRY(check_output(info));
        QUIRE_TRY(usable(device));
        quire_be_device_props props{};
        QUIRE_TRY(read_props(device->core, &props, sink));
        quire_device_info full{};
        full.flags = props.flags;
        full.memory_total_bytes = props.memory_total_bytes;
        full.memory_free_bytes = props.memory_free_bytes;
        full.copy_alignment = props.copy_alignment;
        full.host_visible = props.host_visible;
        copy_text(full.name, props.name);
        copy_text(full.backend, device->backend->name);
        write(full, info);
        return Status{};
    });
}

}  // extern "C"
