// SPDX-License-Identifier: Apache-2.0
//
// subject: the backend under test, and the fixtures that tests need.
//
// The plugin is opened by path, or by name from the folder QUIRE_PLUGIN_PATH, and only used through
// plugin/backend.h, so the same tests run on any backend. Nothing here dereferences a device
// address: bytes go there and come back by the backend's own copies.
//
// If a test cannot go on, it throws std::runtime_error; GoogleTest reports it as a failure.
//
// Threads: a Rig belongs to one test thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "quire/plugin/backend.h"

namespace quire::conformance {

constexpr uint64_t kMillisecond = 1'000'000;  // ns
constexpr uint64_t kFenceFailed = UINT64_MAX;

struct Options {
    std::string backend = "cpu";  // a name, or a path if it contains a slash
    std::string readme;           // of the backend; empty: not checked
    bool is_short = false;        // fewer random shapes, see seeds()
    uint64_t seed = 0;            // which ones
    bool is_huge = false;         // also copy more than 4 GiB
    uint32_t patience_s = 60;     // longer is a hang
    bool is_fast_16bit = false;   // open devices with FAST_16BIT
    bool is_inline = false;       // open devices with INLINE, unless they have run_tasks
};
Options &options();
// The seeds of this run out of the `all` from `first` on: all of them, or with --short about `few`.
std::vector<uint64_t> seeds(uint64_t first, uint32_t all, uint32_t few);
inline uint64_t patience_ns() { return options().patience_s * uint64_t{1'000'000'000}; }

// Opens the plugin. Empty, or why it cannot be opened.
std::string load_subject();
// The backend name that the file's name implies; empty if it implies none.
std::string promised_name();
const quire_backend_api &api();  // functions missing from a shorter table are NULL
const quire_backend_api *table();
quire_backend_query_fn query_function();
quire_host_info host_info();

struct Error : quire_error {
    Error() : quire_error{} { struct_size = sizeof(quire_error); }
};
quire_be_device_desc device_desc(uint32_t index, uint32_t threads);

// Throws the backend's message unless `status` is QUIRE_OK.
void must(quire_status status, const quire_error &error);
// Expects that the call was refused with this status, and that the error has a message.
void expect_refused(quire_status status, const quire_error &error, quire_status expected);

class Rig;

class Memory {
 public:
    Memory(Rig &rig, uint64_t size_bytes, uint32_t kind = QUIRE_BE_MEMORY_DEVICE);
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory();

    uint64_t address() const { return address_; }
    uint64_t size_bytes() const { return size_bytes_; }
    unsigned char *host() const { return static_cast<unsigned char *>(host_); }

 private:
    Rig &rig_;
    uint64_t size_bytes_;
    uint32_t kind_;
    uint64_t address_ = 0;
    void *host_ = nullptr;
};

class Fence {
 public:
    explicit Fence(Rig &rig, uint64_t value = 0);
    Fence(const Fence &) = delete;
    Fence &operator=(const Fence &) = delete;
    ~Fence() { api().fence_destroy(handle_); }

    quire_be_fence *get() const { return handle_; }
    uint64_t read() const;
    void signal_host(uint64_t value) const;
    quire_status wait_host(uint64_t value, uint64_t timeout_ns = patience_ns()) const;

 private:
    quire_be_fence *handle_ = nullptr;
};

// A device with one queue, if the backend has queues, and copies to and from it.
class Rig {
 public:
    explicit Rig(uint32_t threads = 0);
    explicit Rig(const quire_be_device_desc &desc);
    Rig(const Rig &) = delete;
    Rig &operator=(const Rig &) = delete;
    ~Rig();

    quire_be_device *device() const { return device_; }
    quire_be_queue *queue() const { return queue_; }
    quire_be_queue *new_queue();  // released with the rig
    // True if the device multiplies in 16 bits: it was allowed to, and it does.
    bool is_fast_16bit() const;

    void copy(quire_be_queue *queue, uint64_t dst, uint64_t src, uint64_t size_bytes,
              uint32_t kind = QUIRE_BE_COPY_D2D);
    void fill(quire_be_queue *queue, uint64_t address, uint64_t size_bytes, uint32_t byte);
    void signal(quire_be_queue *queue, const Fence &fence, uint64_t value);
    void wait(quire_be_queue *queue, const Fence &fence, uint64_t value);

    // These return when the copy is done. They use the rig's own queue, except for read_through().
    void write(uint64_t address, const void *from, uint64_t size_bytes);
    std::vector<unsigned char> read(uint64_t address, uint64_t size_bytes);
    std::vector<unsigned char> read_through(quire_be_queue *queue, uint64_t address,
                                            uint64_t size_bytes);
    void sync() { sync(queue_); }
    void sync(quire_be_queue *queue);

 private:
    quire_be_device *device_ = nullptr;
    quire_be_queue *queue_ = nullptr;
    std::vector<quire_be_queue *> more_queues_;
};

// Device memory between two zones that must not be written.
class Guarded {
 public:
    Guarded(Rig &rig, uint64_t size_bytes);

    uint64_t address() const { return memory_.address() + kZoneBytes; }
    uint64_t size_bytes() const { return size_bytes_; }
    // The bytes between the zones; a test fails when a zone has changed.
    std::vector<unsigned char> read();
    // The value of an unwritten byte.
    static unsigned char unwritten(uint64_t index);

 private:
    static constexpr uint64_t kZoneBytes = 4096;
    Rig &rig_;
    uint64_t size_bytes_;
    Memory memory_;
};

// Functions in the order in which a backend grows; each stage needs the previous ones. Any function
// of the last stage may be missing; the cases that need it check for themselves.
enum class Needs { devices, memory, queues, transfers, kv_write, attention, optional };
// The first function of the stage, or of one before it, that is NULL; or NULL.
const char *missing_function(Needs needs);
std::vector<std::string> filled_functions();

// Skips tests that need functions that the backend leaves out, and gives the reason.
class SubjectTest : public testing::Test {
 protected:
    explicit SubjectTest(Needs needs = Needs::transfers) : needs_(needs) {}
    void SetUp() override;

 private:
    Needs needs_;
};

}  // namespace quire::conformance
