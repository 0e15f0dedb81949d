// SPDX-License-Identifier: Apache-2.0
//
// backends: the library with the backends under test, each behind `watch`, and the faults of their
// drivers: the emulator's, those of the Vulkan layer, and for cpu, which has no driver, refusals of
// the backend's own functions.
//
// Threads: none.
#pragma once

#include <quire/api.h>

#include <map>
#include <string>
#include <vector>

#include "content.hpp"
#include "watch.hpp"

namespace gpupaths {

template <typename T>
T described() {
    T value{};
    value.struct_size = sizeof value;
    return value;
}

class Backend {
 public:
    Backend(const std::string &name, const std::string &folder);

    // Plants one random fault; returns what it is.
    std::string plant(Rng &rng);
    // Plants a defect of the backend or its driver: "copy_on_device", "driver:copy". False: it has
    // no such call.
    bool plant_defect(const std::string &what, uint64_t nth, uint64_t count);
    // No fault is planted any more, and the device works; defects stay.
    void disarm();
    // The same, and no defect is planted any more.
    void repair();
    // The device is lost until disarm().
    void lose();
    // How many calls were refused so far, by the driver or by the backend; a loss counts as one.
    uint64_t strikes() const;
    uint64_t defects() const;
    // While paused, calls of the program's own are neither refused nor left out.
    void pause(bool is_paused) const;
    void dawdle(uint64_t most_us) const;
    bool is_emulated() const { return name_ == "cuda" || name_ == "hip"; }
    const std::string &name() const { return name_; }
    const Watch &watch() const { return *watch_; }

    // What an engine does with its own streams, through the vendor's functions. 0 is success.
    void *make_stream() const;
    void destroy_stream(void *stream) const;
    int begin_capture(void *stream) const;
    int end_capture(void *stream, void **launchable) const;
    int launch(void *launchable, void *stream) const;
    void destroy_graph(void *launchable) const;
    void await_stream(void *stream) const;

 private:
    template <typename Function>
    Function symbol(const char *name) const;
    template <typename Function>
    Function vendor(const char *of_cuda, const char *of_hip) const;
    std::string plant_emulated(Rng &rng);
    std::string plant_vulkan(Rng &rng);
    std::string plant_watched(Rng &rng);

    std::string name_;
    const Watch *watch_ = nullptr;
    void *driver_ = nullptr;
    bool armed_ = false;  // a fault is planted
    uint64_t losses_ = 0;
};

class Library {
 public:
    // `family` decides which backends are loaded. Ends the process, in words, if one is missing.
    explicit Library(const std::string &family);
    ~Library();
    Library(const Library &) = delete;
    Library &operator=(const Library &) = delete;

    const quire_api *q = nullptr;
    quire_instance *instance = nullptr;
    std::vector<Backend> backends;
    bool has_device = true;  // of the family's own backend

    Backend &named(const std::string &name);
    uint64_t strikes() const;
    void disarm();
    void pause(bool is_paused);
};

}  // namespace gpupaths
