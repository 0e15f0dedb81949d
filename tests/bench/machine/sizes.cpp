// SPDX-License-Identifier: Apache-2.0

#include "sizes.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace quire::bench {

uint64_t last_level_cache_bytes() {
    constexpr uint64_t kUnknown = uint64_t{64} << 20;
    uint64_t largest = 0;
    for (int index = 0;; ++index) {
        std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) +
                           "/size");
        uint64_t size = 0;
        char unit = 0;
        if (!(file >> size)) break;
        file >> unit;
        uint64_t factor = unit == 'G' ? 1 << 30 : unit == 'M' ? 1 << 20 : unit == 'K' ? 1024 : 1;
        largest = std::max(largest, size * factor);
    }
    return largest == 0 ? kUnknown : largest;
}

uint64_t available_memory_bytes() {
    std::ifstream file("/proc/meminfo");
    std::string word;
    uint64_t size_kib = 0;
    while (file >> word) {
        if (word == "MemAvailable:" && file >> size_kib) return size_kib * 1024;
    }
    return static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) *
           static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

WorkingSet limited(uint64_t wanted_bytes, uint64_t most_bytes) {
    uint64_t wanted = std::max<uint64_t>(wanted_bytes, 1 << 20);
    return {std::min(wanted, most_bytes), wanted > most_bytes};
}

WorkingSet working_set(uint32_t scale) {
    return limited(4 * last_level_cache_bytes() / scale, available_memory_bytes() / 2);
}

}  // namespace quire::bench
