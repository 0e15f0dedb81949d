// SPDX-License-Identifier: Apache-2.0
//
// Decoding attention beside the rates at which the same threads read and compute; see README.md.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "report.hpp"
#include "tests/bench/machine/failure.hpp"
#include "tests/bench/machine/fma_rate.hpp"
#include "tests/bench/scene/options.hpp"
#include "tests/bench/scene/session.hpp"

namespace quire::bench {

namespace {

constexpr Shape kShapes[] = {
    {32, 4096, 32, 8, 128}, {8, 4096, 32, 32, 128}, {1, 32768, 32, 8, 128}, {8, 32768, 32, 8, 128},
    {64, 1024, 32, 8, 128}, {32, 4096, 64, 8, 128}, {32, 4096, 32, 8, 64},
};

Offer offer() {
    Offer offer;
    offer.command = "./dev bench attention";
    offer.description =
        "Attention of one new token per sequence over a cache larger than the processor's, beside\n"
        "a streaming read, a plain read through the same block tables, and the rate of f32\n"
        "multiply-and-adds, all by the same number of threads in the same run. A device whose\n"
        "memory the host cannot access is compared with its own copy.";
    offer.has_device = true;
    offer.has_fast_16bit = true;
    offer.example =
        "Example: one case, one type, two threads\n"
        "  ./dev bench attention --case 32x4096-32/8-d128 --dtype f16 --threads 2 --json";
    for (const Shape &shape : kShapes) offer.cases.push_back(shape.name());
    for (const Dtype &dtype : dtypes()) offer.dtypes.push_back(dtype.name);
    return offer;
}

Shape scaled(Shape shape, uint32_t scale) {
    shape.tokens = std::max(shape.tokens / scale, 2u);
    return shape;
}

// Streaming rate of a device with memory of its own: bytes that its copy reads and writes.
Streaming device_copy(Session *session, const WorkingSet &set) {
    uint64_t half_bytes = set.size_bytes / 2;
    Memory from = session->make_device_memory(half_bytes);
    Memory to = session->make_device_memory(half_bytes);
    auto seconds = [&] {
        return session->seconds_of([&] { session->copy(to, from, half_bytes); });
    };
    double best = seconds();
    for (int i = 0; i < 4; ++i) best = std::min(best, seconds());
    session->destroy(to);
    session->destroy(from);
    return {2.0 * static_cast<double>(half_bytes) / best / 1e9, "the device's copy, both ways"};
}

void measure_case(const Shape &shape, const Options &options, const WorkingSet &set,
                  Report *report) {
    for (const std::string &dtype_name : options.dtypes) {
        for (uint32_t threads : options.threads) {
            Subject subject = {shape.name(), find_dtype(dtype_name), threads,
                               shape.dim,    options.device,         options.device_flags()};
            std::fprintf(stderr, "%s, %s, %u threads ...\n", subject.name.c_str(),
                         subject.dtype.name, threads);
            try {
                report->add(subject, measure_attention(subject, scaled(shape, options.scale), set,
                                                       options.seconds));
            } catch (const Unsupported &why) {
                report->add_without_figures(subject, "unsupported", why.what());
            } catch (const std::exception &why) {
                report->add_without_figures(subject, "failed", why.what());
            }
        }
    }
}

// Measures one device with the given number of threads.
void measure_machine(const Options &options, uint32_t threads, const WorkingSet &set,
                     Report *report) {
    std::fprintf(stderr, "machine, %u threads ...\n", threads);
    Session session(threads, options.device);
    if (session.is_host_visible()) {
        report->add_machine(threads, streaming_read(set.size_bytes, threads), fma_gflops(threads));
    } else {
        report->add_machine(threads, device_copy(&session, set), 0.0);
    }
}

// Returns the working set and prints which caches it exceeds.
WorkingSet begin(const Options &options, Report *report) {
    Session session(options.threads.front(), options.device, options.device_flags());
    WorkingSet set = session.working_set(options.scale);
    report->add_device(session.device_name(), session.clock_name());
    std::fprintf(stderr, "K and V of a case: %.0f MiB",
                 static_cast<double>(set.size_bytes) / (1 << 20));
    if (session.is_host_visible()) {
        std::fprintf(stderr, "; last-level cache: %.0f MiB",
                     static_cast<double>(last_level_cache_bytes()) / (1 << 20));
    }
    std::fprintf(stderr, "\n");
    if (set.is_capped) {
        std::fprintf(stderr,
                     "limited to half of the available memory: caches may affect the figures\n");
    }
    return set;
}

int run(const Options &options) {
    Report report(options.json, options.scale);
    WorkingSet set = begin(options, &report);
    for (uint32_t threads : options.threads) measure_machine(options, threads, set, &report);
    for (const Shape &shape : kShapes) {
        if (options.wants(shape.name())) measure_case(shape, options, set, &report);
    }
    return report.finish() ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

}  // namespace quire::bench

int main(int argc, char **argv) {
    int exit_status = 0;
    auto options = quire::bench::parse_options(argc, argv, quire::bench::offer(), &exit_status);
    if (!options) return exit_status;
    try {
        return quire::bench::run(*options);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return EXIT_FAILURE;
    }
}
