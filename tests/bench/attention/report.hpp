// SPDX-License-Identifier: Apache-2.0
//
// report: figures beside their floors, as lines for a person and as JSON.
//
// Lines go to standard output during the run; with JSON, only the object at the end does.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "measure.hpp"
#include "tests/bench/machine/streaming.hpp"

namespace quire::bench {

// Names what is measured.
class Report {
 public:
    // scale: what sizes were divided by; above 1 figures mean nothing, so none is complained about.
    Report(bool is_json, uint32_t scale);

    // name: the device's own; clock: times its attention, "device" or "host".
    void add_device(const std::string &name, const char *clock);
    // fma_gflops 0: unknown.
    void add_machine(uint32_t threads, const Streaming &streaming, double fma_gflops);
    void add(const Subject &subject, const Measured &measured);
    // outcome: "unsupported" or "failed".
    void add_without_figures(const Subject &subject, const char *outcome, const std::string &why);
    // Prints the object, if requested. False if nothing was measured, or something failed.
    bool finish() const;

 private:
    struct Floor {
        double stream_gbps;
        double fma_gflops;
    };
    bool has_device_clock() const { return clock_ == "device"; }
    void print_heading() const;
    void print(const nlohmann::ordered_json &result, const Subject &subject) const;

    bool is_json_;
    bool has_failed_ = false;
    uint32_t scale_;
    std::string clock_;
    std::map<uint32_t, Floor> floors_;
    nlohmann::ordered_json object_;
};

}  // namespace quire::bench
