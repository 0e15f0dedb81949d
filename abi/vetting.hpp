// SPDX-License-Identifier: Apache-2.0
//
// vetting: what a plugin hands out while it is loaded, before anyone relies on it.
//
// Threads: any.
#pragma once

#include <cstring>
#include <string>

#include "abi/guard.hpp"
#include "core/device/backend_call.hpp"

namespace quire::abi {

constexpr size_t kNameCapacity = 32;  // of a plugin's name, with its end

// The plugin's text is not trusted to be terminated.
inline std::string bounded(const char *text, size_t capacity) {
    return text != nullptr ? std::string(text, strnlen(text, capacity)) : std::string();
}

// Calls the plugin's code during loading; an exception stops here.
template <typename Call>
quire_status contained(const char *what, std::string *why, Call &&call) {
    ErrorSink sink;
    quire_status status = QUIRE_OK;
    try {
        status = call(&sink.error);
    } catch (...) {
        *why = std::string(what) + " threw an exception, which the contract forbids";
        return QUIRE_E_BACKEND;
    }
    if (status == QUIRE_OK) {
        *why = bounded(sink.error.message, sizeof sink.error.message);
        return QUIRE_OK;
    }
    if (!known_failure(status)) {
        *why = std::string(what) + " returned " + std::to_string(status) +
               ", which is not in the contract";
        return QUIRE_E_BACKEND;
    }
    *why =
        std::string(what) + " refused: " + bounded(sink.error.message, sizeof sink.error.message);
    if (sink.error.message[0] == '\0') *why += "no reason given";
    return status;
}

// A name is shown to people and names files, so it holds only characters that a file name may have.
inline const char *wrong_name(const char *name) {
    if (name == nullptr || name[0] == '\0') return "its table has no name";
    size_t length = strnlen(name, kNameCapacity);
    if (length == kNameCapacity) return "its name is longer than 31 bytes, or is not terminated";
    for (size_t i = 0; i < length; ++i) {
        bool plain = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= '0' && name[i] <= '9') ||
                     name[i] == '_' || name[i] == '-';
        if (!plain) return "its name may have only a-z, 0-9, _ and -";
    }
    return nullptr;
}

}  // namespace quire::abi
