// SPDX-License-Identifier: Apache-2.0
//
// library: opens libquire as any other program would, by dlopen, and turns its errors into
// exceptions.
//
// Searched: the environment's QUIRE_LIBRARY, then the installed tree that holds this program,
// wherever it was moved, then where the dynamic linker looks. Nowhere else outside that tree: a
// folder above it may be one that anyone can write.
#pragma once

#include <quire/dyn.h>
#include <quire/quire.h>

#include <stdexcept>
#include <string>

namespace quire::cli {

// Bad input or a failed call; what() says what to do. The program ends with exit_code.
struct Failure : std::runtime_error {
    Failure(const std::string &text, int code) : std::runtime_error(text), exit_code(code) {}
    int exit_code;
};

constexpr int kFailed = 1;
constexpr int kUsage = 2;

const quire_api &library();

// For an instance that found no backend: where it looked, and what to do.
std::string why_no_backend(quire_instance *instance);

// An error struct to pass to calls; check() throws its message if the call failed.
struct Error : quire_error {
    Error() : quire_error{} { struct_size = sizeof(quire_error); }
};

inline void check(quire_status status, const quire_error &error) {
    if (status < 0) throw Failure(error.message, kFailed);
}

template <typename T>
T described() {
    T value{};
    value.struct_size = sizeof value;
    return value;
}

// An instance for the length of a scope.
class Instance {
 public:
    Instance() {
        auto desc = described<quire_instance_desc>();
        Error error;
        check(library().instance_create(&desc, &handle_, &error), error);
    }
    ~Instance() { library().instance_destroy(handle_, nullptr); }
    Instance(const Instance &) = delete;
    Instance &operator=(const Instance &) = delete;
    quire_instance *get() const { return handle_; }

 private:
    quire_instance *handle_ = nullptr;
};

}  // namespace quire::cli
