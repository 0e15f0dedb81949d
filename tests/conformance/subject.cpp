// SPDX-License-Identifier: Apache-2.0

#include "subject.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "tests/device/fill_range.hpp"
#include "tests/effort.hpp"

namespace quire::conformance {

namespace {

quire_backend_query_fn the_query = nullptr;
const quire_backend_api *the_table = nullptr;
quire_backend_api the_api{};

void *allocate(void *, uint64_t size_bytes, uint64_t alignment) {
    return std::aligned_alloc(alignment, (size_bytes + alignment - 1) / alignment * alignment);
}

void release(void *, void *pointer, uint64_t, uint64_t) { std::free(pointer); }

void log(void *, int32_t level, const char *component, const char *message) {
    std::fprintf(stderr, "log %d %s: %s\n", level, component, message);
}

}  // namespace

Options &options() {
    static Options the_options;
    return the_options;
}

std::vector<uint64_t> seeds(uint64_t first, uint32_t all, uint32_t few) {
    if (!options().is_short) return tests::window(first, all, all, 0);
    // A short run takes `few`; the lower efforts (tests/effort.hpp) take only this share of them.
    uint64_t percent = tests::chosen({.all = 100, .usual = 30, .few = 25});
    return tests::window(first, all, (few * percent + 99) / 100, options().seed);
}

quire_host_info host_info() {
    quire_host_info host{};
    host.struct_size = sizeof host;
    host.abi_major = QUIRE_BACKEND_ABI_MAJOR;
    host.abi_minor = QUIRE_BACKEND_ABI_MINOR;
    host.allocate = allocate;
    host.release = release;
    host.log = log;
    return host;
}

std::string promised_name() {
    std::string file = options().backend.substr(options().backend.rfind('/') + 1);
    if (options().backend.find('/') == std::string::npos) return file;
    constexpr std::string_view kBegin = "quire_backend_", kEnd = ".so";
    if (!file.starts_with(kBegin) || !file.ends_with(kEnd)) return {};
    return file.substr(kBegin.size(), file.size() - kBegin.size() - kEnd.size());
}

std::string load_subject() {
    std::string path = options().backend;
    if (path.find('/') == std::string::npos) {
        const char *folder = std::getenv("QUIRE_PLUGIN_PATH");
        if (folder == nullptr) return "QUIRE_PLUGIN_PATH must name the folder of the backends";
        path = std::string(folder) + "/quire_backend_" + path + ".so";
    }
    void *module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void *entry = module != nullptr ? dlsym(module, QUIRE_BACKEND_ENTRY) : nullptr;
    if (entry == nullptr) return dlerror();
    the_query = reinterpret_cast<quire_backend_query_fn>(entry);
    quire_host_info host = host_info();
    Error error;
    quire_status status = the_query(&host, &the_table, &error);
    error.message[sizeof error.message - 1] = 0;
    if (status != QUIRE_OK) {
        return path + " refused with status " + std::to_string(status) + ": " + error.message;
    }
    if (the_table == nullptr || the_table->struct_size < offsetof(quire_backend_api, device_open)) {
        return path + ": the backend returned no function table, or one that is too short";
    }
    if (the_table->name == nullptr) return path + ": the backend's table has a NULL name";
    std::memcpy(&the_api, the_table, std::min<size_t>(the_table->struct_size, sizeof the_api));
    return {};
}

const quire_backend_api &api() { return the_api; }
const quire_backend_api *table() { return the_table; }
quire_backend_query_fn query_function() { return the_query; }

void must(quire_status status, const quire_error &error) {
    if (status == QUIRE_OK) return;
    throw std::runtime_error("status " + std::to_string(status) + ": " + error.message);
}

void expect_refused(quire_status status, const quire_error &error, quire_status expected) {
    EXPECT_EQ(status, expected) << error.message;
    EXPECT_EQ(error.status, expected);
    EXPECT_STREQ(error.backend, api().name);
    EXPECT_GT(std::strlen(error.message), 10u) << "says nothing: '" << error.message << "'";
}

Memory::Memory(Rig &rig, uint64_t size_bytes, uint32_t kind)
    : rig_(rig), size_bytes_(size_bytes), kind_(kind) {
    Error error;
    must(api().mem_alloc(rig.device(), size_bytes, kind, &address_, &host_, &error), error);
}

Memory::~Memory() { api().mem_free(rig_.device(), address_, size_bytes_, kind_); }

Fence::Fence(Rig &rig, uint64_t value) {
    Error error;
    must(api().fence_create(rig.device(), value, &handle_, &error), error);
}

uint64_t Fence::read() const {
    Error error;
    uint64_t value = 0;
    must(api().fence_read(handle_, &value, &error), error);
    return value;
}

void Fence::signal_host(uint64_t value) const {
    Error error;
    must(api().fence_signal_host(handle_, value, &error), error);
}

quire_status Fence::wait_host(uint64_t value, uint64_t timeout_ns) const {
    Error error;
    return api().fence_wait_host(handle_, value, timeout_ns, &error);
}

quire_be_device_desc device_desc(uint32_t index, uint32_t threads) {
    quire_be_device_desc desc{};
    desc.struct_size = sizeof desc;
    desc.index = index;
    desc.threads = threads;
    if (options().is_fast_16bit) desc.flags |= QUIRE_BE_DEVICE_FAST_16BIT;
    if (options().is_inline) desc.flags |= QUIRE_BE_DEVICE_INLINE;
    return desc;
}

Rig::Rig(uint32_t threads) : Rig(device_desc(0, threads)) {}

Rig::Rig(const quire_be_device_desc &desc) {
    Error error;
    must(api().device_open(&desc, &device_, &error), error);
    if (api().queue_bind == nullptr || api().queue_release == nullptr) return;
    must(api().queue_bind(device_, nullptr, &queue_, &error), error);
}

bool Rig::is_fast_16bit() const {
    Error error;
    quire_be_device_props props{};
    props.struct_size = sizeof props;
    must(api().device_props(device_, &props, &error), error);
    return (props.flags & QUIRE_BE_DEVICE_FAST_16BIT) != 0;
}

Rig::~Rig() {
    for (quire_be_queue *queue : more_queues_) api().queue_release(queue);
    if (queue_ != nullptr) api().queue_release(queue_);
    api().device_close(device_);
}

quire_be_queue *Rig::new_queue() {
    Error error;
    quire_native native{};
    quire_be_queue *queue = nullptr;
    must(api().queue_bind(device_, &native, &queue, &error), error);
    more_queues_.push_back(queue);
    return queue;
}

void Rig::copy(quire_be_queue *queue, uint64_t dst, uint64_t src, uint64_t size_bytes,
               uint32_t kind) {
    Error error;
    quire_be_copy one = {dst, src, size_bytes, kind, 0};
    must(api().copy(queue, &one, 1, &error), error);
}

void Rig::fill(quire_be_queue *queue, uint64_t address, uint64_t size_bytes, uint32_t byte) {
    Error error;
    must(test::fill_range(api(), queue, address, size_bytes, byte, &error), error);
}

void Rig::signal(quire_be_queue *queue, const Fence &fence, uint64_t value) {
    Error error;
    must(api().fence_signal(queue, fence.get(), value, &error), error);
}

void Rig::wait(quire_be_queue *queue, const Fence &fence, uint64_t value) {
    Error error;
    must(api().fence_wait(queue, fence.get(), value, &error), error);
}

void Rig::write(uint64_t address, const void *from, uint64_t size_bytes) {
    if (size_bytes == 0) return;
    Memory staging(*this, size_bytes, QUIRE_BE_MEMORY_HOST);
    std::memcpy(staging.host(), from, size_bytes);
    copy(queue_, address, staging.address(), size_bytes, QUIRE_BE_COPY_H2D);
    sync();
}

std::vector<unsigned char> Rig::read(uint64_t address, uint64_t size_bytes) {
    return read_through(queue_, address, size_bytes);
}

std::vector<unsigned char> Rig::read_through(quire_be_queue *queue, uint64_t address,
                                             uint64_t size_bytes) {
    if (size_bytes == 0) return {};
    Memory staging(*this, size_bytes, QUIRE_BE_MEMORY_HOST);
    copy(queue, staging.address(), address, size_bytes, QUIRE_BE_COPY_D2H);
    sync(queue);
    return {staging.host(), staging.host() + size_bytes};
}

void Rig::sync(quire_be_queue *queue) {
    Fence done(*this);
    signal(queue, done, 1);
    if (quire_status status = done.wait_host(1)) {
        throw std::runtime_error("the queue did not get there: status " + std::to_string(status));
    }
}

Guarded::Guarded(Rig &rig, uint64_t size_bytes)
    : rig_(rig), size_bytes_(size_bytes), memory_(rig, size_bytes + 2 * kZoneBytes) {
    std::vector<unsigned char> bytes(memory_.size_bytes());
    for (uint64_t i = 0; i < bytes.size(); ++i) bytes[i] = unwritten(i - kZoneBytes);
    rig.write(memory_.address(), bytes.data(), bytes.size());
}

unsigned char Guarded::unwritten(uint64_t index) {
    return static_cast<unsigned char>(0xA5 ^ (index * 151 >> 3));
}

std::vector<unsigned char> Guarded::read() {
    std::vector<unsigned char> bytes = rig_.read(memory_.address(), memory_.size_bytes());
    for (uint64_t i = 0; i < bytes.size(); ++i) {
        bool is_zone = i < kZoneBytes || i >= kZoneBytes + size_bytes_;
        if (!is_zone || bytes[i] == unwritten(i - kZoneBytes)) continue;
        ADD_FAILURE() << "byte " << static_cast<int64_t>(i - kZoneBytes) << " of a buffer of "
                      << size_bytes_ << " bytes was written";
        break;
    }
    return {bytes.begin() + kZoneBytes,
            bytes.begin() + kZoneBytes + static_cast<int64_t>(size_bytes_)};
}

namespace {

struct Function {
    Needs stage;
    const char *name;
    bool is_there;
};

std::vector<Function> functions_of(const quire_backend_api &a) {
    using enum Needs;
    return {
        {devices, "probe", a.probe != nullptr},
        {devices, "device_open", a.device_open != nullptr},
        {devices, "device_close", a.device_close != nullptr},
        {devices, "device_props", a.device_props != nullptr},
        {devices, "shutdown", a.shutdown != nullptr},
        {memory, "mem_alloc", a.mem_alloc != nullptr},
        {memory, "mem_free", a.mem_free != nullptr},
        {queues, "queue_bind", a.queue_bind != nullptr},
        {queues, "queue_release", a.queue_release != nullptr},
        {queues, "fence_create", a.fence_create != nullptr},
        {queues, "fence_destroy", a.fence_destroy != nullptr},
        {queues, "fence_read", a.fence_read != nullptr},
        {queues, "fence_signal_host", a.fence_signal_host != nullptr},
        {queues, "fence_wait_host", a.fence_wait_host != nullptr},
        {queues, "fence_signal", a.fence_signal != nullptr},
        {queues, "fence_wait", a.fence_wait != nullptr},
        {queues, "quiesce", a.quiesce != nullptr},
        {transfers, "copy", a.copy != nullptr},
        {transfers, "fill", a.fill != nullptr},
        {kv_write, "query_attention", a.query_attention != nullptr},
        {kv_write, "kv_write", a.kv_write != nullptr},
        {attention, "plan_create", a.plan_create != nullptr},
        {attention, "plan_destroy", a.plan_destroy != nullptr},
        {attention, "attention", a.attention != nullptr},
        {optional, "merge", a.merge != nullptr},
        {optional, "move_tokens", a.move_tokens != nullptr},
        {optional, "native_signal", a.native_signal != nullptr},
        {optional, "native_wait", a.native_wait != nullptr},
        {optional, "mem_import", a.mem_import != nullptr},
    };
}

}  // namespace

const char *missing_function(Needs needs) {
    for (const Function &function : functions_of(api())) {
        if (function.stage <= needs && !function.is_there) return function.name;
    }
    return nullptr;
}

std::vector<std::string> filled_functions() {
    std::vector<std::string> names;
    for (const Function &function : functions_of(api())) {
        if (function.is_there) names.push_back(function.name);
    }
    return names;
}

void SubjectTest::SetUp() {
    if (const char *function = missing_function(needs_)) GTEST_SKIP() << function << " is NULL";
    Error error;
    uint32_t device_count = 0;
    ASSERT_EQ(api().probe(&device_count, &error), QUIRE_OK) << error.message;
    if (device_count == 0) GTEST_SKIP() << api().name << " finds no device on this machine";
}

}  // namespace quire::conformance
