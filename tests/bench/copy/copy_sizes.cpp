// SPDX-License-Identifier: Apache-2.0

#include "copy_sizes.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "blocks.hpp"
#include "tests/bench/machine/median.hpp"
#include "tests/bench/machine/rounds.hpp"

namespace quire::bench {

namespace {

constexpr const char *kVariable = "QUIRE_GPU_DMA_BYTES";
// By the kernel, by the driver, and the default.
constexpr const char *kBorders[] = {"18446744073709551615", "0", nullptr};
constexpr size_t kChoices = std::size(kBorders);
constexpr Geometry kSizes[] = {{1, 2}, {2, 2}, {4, 2}, {8, 2}, {16, 2}, {32, 2}, {32, 4}, {32, 8}};
constexpr uint64_t kBytes = 64 << 20;
constexpr const char *kWays[] = {"copy_on_write", "swap_out", "swap_in"};

// During its lifetime devices are opened with this threshold; NULL: with the default.
class Border {
 public:
    explicit Border(const char *border) {
        if (border == nullptr) return;
        const char *before = std::getenv(kVariable);
        before_ = before != nullptr ? before : "";
        setenv(kVariable, border, 1);
    }
    Border(const Border &) = delete;
    Border &operator=(const Border &) = delete;
    // An empty value counts as unset.
    ~Border() {
        if (before_) setenv(kVariable, before_->c_str(), 1);
    }

 private:
    std::optional<std::string> before_;
};

// One geometry on a device opened with one threshold.
struct Scene {
    Scene(const Geometry &geometry, uint32_t count, const Place &place)
        : writes(geometry, count, place), swap(geometry, count, place) {}
    // Alternates with other scenes, so that a disturbance affects all of them.
    void measure() {
        seconds[0].push_back(writes.seconds(Destination::warm));
        seconds[1].push_back(swap.out_seconds());
        seconds[2].push_back(swap.in_seconds(Destination::warm));
    }

    CopyOnWrite writes;
    Swap swap;
    std::vector<double> seconds[std::size(kWays)];
};

}  // namespace

bool has_choice(const std::string &device) {
    std::string backend = device.substr(0, device.find(':'));
    return backend == "cuda" || backend == "hip";
}

std::vector<SizeRates> measure_sizes(const Options &options) {
    Place place = {options.device, options.threads.front()};
    Session keeps_the_driver_up(place.threads, place.device);
    std::vector<SizeRates> rates;
    for (const Geometry &geometry : kSizes) {
        uint64_t block_bytes = geometry.block_bytes();
        auto count =
            static_cast<uint32_t>(std::max<uint64_t>(kBytes / options.scale / block_bytes, 4));
        std::unique_ptr<Scene> scenes[kChoices];
        for (size_t i = 0; i < kChoices; ++i) {
            Border border(kBorders[i]);
            scenes[i] = std::make_unique<Scene>(geometry, count, place);
            scenes[i]->measure();
            for (std::vector<double> &seconds : scenes[i]->seconds) seconds.clear();
        }
        for (Rounds rounds(options.seconds / 8); rounds.next();) {
            for (auto &scene : scenes) scene->measure();
        }
        for (size_t way = 0; way < std::size(kWays); ++way) {
            double gbps[kChoices];
            for (size_t i = 0; i < kChoices; ++i) {
                double bytes = static_cast<double>(count * block_bytes);
                gbps[i] = bytes / median(scenes[i]->seconds[way]) / 1e9;
            }
            rates.push_back({kWays[way], block_bytes, count, gbps[0], gbps[1], gbps[2]});
        }
    }
    return rates;
}

uint64_t driver_from_bytes(const std::vector<SizeRates> &rates, const char *way) {
    uint64_t from_bytes = 0;
    for (auto one = rates.rbegin(); one != rates.rend(); ++one) {
        if (std::strcmp(one->way, way) != 0) continue;
        if (one->driver_gbps <= one->kernel_gbps) break;
        from_bytes = one->block_bytes;
    }
    return from_bytes;
}

}  // namespace quire::bench
