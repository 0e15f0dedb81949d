// SPDX-License-Identifier: Apache-2.0
//
// Block copies beside memcpy; README.md lists them.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>

#include "blocks.hpp"
#include "copy_sizes.hpp"
#include "tests/bench/machine/failure.hpp"
#include "tests/bench/machine/median.hpp"
#include "tests/bench/machine/rounds.hpp"
#include "tests/bench/machine/sizes.hpp"
#include "tests/bench/scene/dtype.hpp"
#include "tests/bench/scene/heading.hpp"
#include "tests/bench/scene/options.hpp"

namespace quire::bench {

namespace {

// Llama-3-8B's blocks, 2 MiB, and small ones of 16 KiB.
constexpr Geometry kGeometries[] = {{32, 8}, {1, 2}};
// The total is as large as the host's last-level cache, so that source and destination are twice
// that; for a device's own memory it is half of a size that exceeds its caches. And few enough
// blocks that planning them takes no longer than copying.
constexpr uint32_t kMostBlocks = 8192;

uint32_t block_count(const Geometry &geometry, const Session &session, uint32_t scale) {
    uint64_t bytes = session.is_host_visible() ? last_level_cache_bytes() / scale
                                               : session.working_set(scale).size_bytes / 2;
    bytes = std::min(bytes, available_memory_bytes() / 8);
    return static_cast<uint32_t>(
        std::clamp<uint64_t>(bytes / geometry.block_bytes(), 4, kMostBlocks));
}

// The blocks to copy, their total bytes, and the memcpy of as many bytes.
class Copies {
 public:
    Copies(const Options &options, const Geometry &geometry, uint32_t threads)
        : options_(options),
          geometry_(geometry),
          place_{options.device, threads},
          session_(threads, options.device),
          is_host_visible_(session_.is_host_visible()),
          count_(block_count(geometry, session_, options.scale)),
          floor_(uint64_t{count_} * geometry.block_bytes(), geometry.block_bytes(), threads) {}

    void measure(nlohmann::ordered_json *cases) {
        if (options_.wants("copy_on_write")) {
            CopyOnWrite copies(geometry_, count_, place_);
            for (Destination to : destinations()) {
                add(cases, "copy_on_write", to, [&] { return copies.seconds(to); });
            }
        }
        if (options_.wants("swap_out") || options_.wants("swap_in")) swap(cases);
        if (options_.wants("memory_copy")) {
            for (Destination to : destinations()) memory_copy(cases, to);
        }
    }

 private:
    void swap(nlohmann::ordered_json *cases) {
        Swap swap(geometry_, count_, place_);
        // The host tier's pages are fresh only once.
        double first = swap.out_seconds();
        if (is_host_visible_) {
            add_medians(cases, "swap_out", Destination::fresh, first,
                        floor_seconds("swap_out", Destination::fresh));
        }
        swap.in_seconds(Destination::warm);
        add(cases, "swap_out", Destination::warm, [&] {
            double seconds = swap.out_seconds();
            swap.in_seconds(Destination::warm);
            return seconds;
        });
        for (Destination to : destinations()) {
            add(cases, "swap_in", to, [&] {
                swap.out_seconds();
                return swap.in_seconds(to);
            });
        }
    }

    // One call per block, between two memories of the device.
    void memory_copy(nlohmann::ordered_json *cases, Destination destination) {
        Session &session = session_;
        uint64_t block_bytes = geometry_.block_bytes();
        Memory from = session.make_host_memory(count_ * block_bytes);
        Memory to = session.make_host_memory(count_ * block_bytes);
        fill_numbers(find_dtype("f32").written_as, from.bytes, count_ * block_bytes / 4);
        auto copy = [&] {
            auto begin = std::chrono::steady_clock::now();
            for (uint64_t i = 0; i < count_; ++i) {
                session.must(session.api.memory_copy(session.queue, to.handle, i * block_bytes,
                                                     from.handle, i * block_bytes, block_bytes,
                                                     &session.error));
            }
            session.sync();
            std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
            return seconds.count();
        };
        if (destination == Destination::warm) copy();
        add(cases, "memory_copy", destination, [&] {
            if (destination == Destination::warm) return copy();
            session.destroy(to);
            to = session.make_host_memory(count_ * block_bytes);
            return copy();
        });
        session.destroy(to);
        session.destroy(from);
    }

    // A device keeps its pages: none is ever fresh.
    std::vector<Destination> destinations() const {
        if (!is_host_visible_) return {Destination::warm};
        return {Destination::fresh, Destination::warm};
    }

    // The host's memcpy; for a device with memory of its own, one large copy in the same direction.
    double floor_seconds(const std::string &name, Destination destination) {
        if (is_host_visible_) return floor_.seconds(destination);
        uint64_t size_bytes = count_ * geometry_.block_bytes();
        bool is_from_host = name == "swap_in" || name == "memory_copy";
        bool is_to_host = name == "swap_out" || name == "memory_copy";
        auto make = [&](bool is_host) {
            return is_host ? session_.make_host_memory(size_bytes)
                           : session_.make_device_memory(size_bytes);
        };
        Memory from = make(is_from_host);
        Memory to = make(is_to_host);
        double seconds = session_.host_seconds_of([&] { session_.copy(to, from, size_bytes); });
        session_.destroy(to);
        session_.destroy(from);
        return seconds;
    }

    // Alternates with the floor.
    void add(nlohmann::ordered_json *cases, const char *name, Destination destination,
             const std::function<double()> &copy) {
        std::vector<double> seconds, floor_seconds;
        for (Rounds rounds(options_.seconds); rounds.next();) {
            seconds.push_back(copy());
            floor_seconds.push_back(this->floor_seconds(name, destination));
        }
        add_medians(cases, name, destination, median(seconds), median(floor_seconds));
    }

    void add_medians(nlohmann::ordered_json *cases, const char *name, Destination destination,
                     double seconds, double floor_seconds) {
        if (!options_.wants(name)) return;
        const char *to = destination == Destination::fresh ? "fresh" : "warm";
        double bytes = static_cast<double>(uint64_t{count_} * geometry_.block_bytes());
        add_case({{"case", name},
                  {"block_bytes", geometry_.block_bytes()},
                  {"destination", to},
                  {"threads", place_.threads},
                  {"blocks", count_},
                  {"milliseconds", seconds * 1e3},
                  {"gbps", bytes / seconds / 1e9},
                  {"memcpy_gbps", bytes / floor_seconds / 1e9},
                  {"share_of_memcpy", floor_seconds / seconds}},
                 options_.json, cases);
        if (options_.json) return;
        if (cases->size() == 1) {
            std::printf(
                "case             block KiB  to     threads        ms    GB/s   memcpy "
                "| of memcpy\n");
        }
        std::printf("%-16s %9.0f  %-6s %7u %9.2f %7.2f %8.2f | %7.1f %%\n", name,
                    static_cast<double>(geometry_.block_bytes()) / 1024, to, place_.threads,
                    seconds * 1e3, bytes / seconds / 1e9, bytes / floor_seconds / 1e9,
                    100 * floor_seconds / seconds);
        std::fflush(stdout);
    }

    const Options &options_;
    Geometry geometry_;
    Place place_;
    Session session_;
    bool is_host_visible_;
    uint32_t count_;
    MemcpyRate floor_;
};

void print_sizes(const std::vector<SizeRates> &rates) {
    std::printf("\ncase             block KiB  blocks   GB/s by kernel  by driver  as chosen\n");
    for (const SizeRates &one : rates) {
        std::printf("%-16s %9.0f %7u %16.2f %10.2f %10.2f\n", one.way,
                    static_cast<double>(one.block_bytes) / 1024, one.blocks, one.kernel_gbps,
                    one.driver_gbps, one.chosen_gbps);
    }
    for (const char *way : {"copy_on_write", "swap_out", "swap_in"}) {
        uint64_t from_bytes = driver_from_bytes(rates, way);
        if (from_bytes == 0) {
            std::printf("%s: the kernel is faster at the largest size\n", way);
        } else {
            std::printf("%s: the driver is faster from %.0f KiB on\n", way,
                        static_cast<double>(from_bytes) / 1024);
        }
    }
}

void run_sizes(const Options &options, nlohmann::ordered_json *object) {
    std::fprintf(stderr, "blocks of 16 KiB to 2 MiB, by kernel and by driver ...\n");
    std::vector<SizeRates> rates = measure_sizes(options);
    for (const SizeRates &one : rates) {
        (*object)["sizes"].push_back({{"case", one.way},
                                      {"block_bytes", one.block_bytes},
                                      {"blocks", one.blocks},
                                      {"kernel_gbps", one.kernel_gbps},
                                      {"driver_gbps", one.driver_gbps},
                                      {"chosen_gbps", one.chosen_gbps}});
    }
    if (!options.json) print_sizes(rates);
}

Offer offer() {
    Offer offer;
    offer.command = "./dev bench copy";
    offer.description =
        "Copies of blocks, of 2 MiB and of 16 KiB: on write within the pool, swaps to the host\n"
        "tier and back, and between two memories; compared with memcpy of as many bytes by as\n"
        "many threads in the same run, into memory never written before and into memory written\n"
        "before. On a device whose memory the host cannot access: compared with one large copy on\n"
        "the device. On CUDA and HIP devices also by kernel and by driver, for blocks of 16 KiB\n"
        "to 2 MiB.";
    offer.has_device = true;
    offer.example =
        "Example: swaps in, one thread\n"
        "  ./dev bench copy --case swap_in --threads 1 --json";
    offer.cases = {"copy_on_write", "swap_out", "swap_in", "memory_copy", "sizes"};
    return offer;
}

void run(const Options &options) {
    nlohmann::ordered_json object;
    std::string device = Session(options.threads.front(), options.device).device_name();
    add_heading(device, options.scale, options.json, &object);
    object["machine"]["last_level_cache_bytes"] = last_level_cache_bytes();
    object["cases"] = nlohmann::ordered_json::array();
    bool wants_sizes = options.wants("sizes");
    bool wants_others = options.cases.size() > (wants_sizes ? 1 : 0);
    for (const Geometry &geometry : kGeometries) {
        if (!wants_others) break;
        for (uint32_t threads : options.threads) {
            std::fprintf(stderr, "blocks of %.0f KiB, %u threads ...\n",
                         static_cast<double>(geometry.block_bytes()) / 1024, threads);
            Copies(options, geometry, threads).measure(&object["cases"]);
        }
    }
    bool has_sizes = wants_sizes && has_choice(options.device);
    if (has_sizes) run_sizes(options, &object);
    if (!has_sizes && !wants_others) {
        throw Failure(
            "sizes: only cuda and hip devices copy by kernel or by driver; choose one with "
            "--device");
    }
    if (options.json) std::printf("%s\n", object.dump(2).c_str());
}

}  // namespace

}  // namespace quire::bench

int main(int argc, char **argv) {
    int exit_status = 0;
    auto options = quire::bench::parse_options(argc, argv, quire::bench::offer(), &exit_status);
    if (!options) return exit_status;
    try {
        quire::bench::run(*options);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
