// SPDX-License-Identifier: Apache-2.0
//
// report: what was measured beside its floors, as lines for a person and as JSON.
//
// Lines go to standard output while it is measured, or with JSON nothing but the object at the end.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "measure.hpp"
#include "tests/bench/machine/streaming.hpp"

namespace quire::bench {

// What is measured, in names.
class Report {
 public:
    // scale: what sizes were divided by; above 1 figures say nothing, and of none is complained.
    Report(bool is_json, uint32_t scale);

    // As it calls itself, and by which clock its attention is timed: "device" or "host".
    void add_device(const std::string &name, const char *clock);
    // fma_gflops 0: not known.
    void add_machine(uint32_t threads, const Streaming &streaming, double fma_gflops);
    void add(const Subject &subject, const Measured &measured);
    // outcome: "unsupported" or "failed".
    void add_without_figures(const Subject &subject, const char *outcome, const std::string &why);
    // Prints the object, if it is wanted. False when nothing was measured, or something failed.
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
