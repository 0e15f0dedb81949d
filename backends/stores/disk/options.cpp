// SPDX-License-Identifier: Apache-2.0

#include "disk/options.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "disk/record.hpp"
#include "shared/numbers.hpp"
#include "shared/refusal.hpp"

namespace quire::disk {

const char kHelp[] =
    "directory   required       where the store is; made if its parent is there\n"
    "capacity    16GiB          most bytes of all files together, at least 256KiB\n"
    "segment     256MiB         bytes of a segment, of which the oldest is dropped for room: "
    "64KiB\n"
    "                           to a quarter of the capacity; default capacity/8 if that is less\n"
    "durability  segment        values survive a crash of the machine: 'none' after FLUSH only;\n"
    "                           'segment' also once their segment is full and after close;\n"
    "                           'record' once they are answered\n"
    "io          auto           'uring', 'threads', or 'auto': uring where the system offers it\n"
    "threads     4              that check and copy values, 1 to 64; as many do io=threads\n"
    "direct      auto           O_DIRECT: 'yes', 'no', or 'auto': where the file system has it\n";

namespace {

constexpr uint64_t kKiB = uint64_t{1} << 10;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kLeastCapacity = 256 * kKiB;
constexpr uint64_t kLeastSegment = 64 * kKiB;
constexpr uint64_t kMostSegment = 16 * kGiB;
// A transfer is one buffer; larger values would need more memory than they are worth.
constexpr uint64_t kMostRecord = 64 * kMiB;
constexpr uint32_t kMostThreads = 64;

// Finds `text` among the words of an enumeration, which are in its order.
template <typename Enum, size_t count>
bool read_word(std::string_view text, const std::string_view (&words)[count], Enum *out) {
    const auto *found = std::find(words, words + count, text);
    if (found == words + count) return false;
    *out = static_cast<Enum>(found - words);
    return true;
}

constexpr std::string_view kDurabilities[] = {"none", "segment", "record"};
constexpr std::string_view kIos[] = {"auto", "uring", "threads"};
constexpr std::string_view kDirects[] = {"auto", "yes", "no"};
constexpr const char *kNames[] = {"directory", "capacity", "segment", "durability",
                                  "io",        "threads",  "direct"};

// Empty, or the values that the option takes.
const char *read_one(std::string_view name, std::string_view value, Options *out) {
    if (name == "directory") {
        out->directory = value;
        return value.empty() ? "a path" : "";
    }
    if (name == "capacity") {
        bool is_right = read_size(value, &out->capacity_bytes) &&
                        out->capacity_bytes >= kLeastCapacity &&
                        out->capacity_bytes <= uint64_t{1} << 60;
        return is_right ? "" : "a size from 256KiB on, such as 16GiB";
    }
    if (name == "segment") {
        bool is_right = read_size(value, &out->segment_bytes) &&
                        out->segment_bytes >= kLeastSegment && out->segment_bytes <= kMostSegment;
        return is_right ? "" : "a size of 64KiB to 16GiB, such as 256MiB";
    }
    if (name == "durability") {
        return read_word(value, kDurabilities, &out->durability) ? "" : "none, segment or record";
    }
    if (name == "io") return read_word(value, kIos, &out->io) ? "" : "auto, uring or threads";
    if (name == "direct") return read_word(value, kDirects, &out->direct) ? "" : "auto, yes or no";
    uint64_t count = 0;
    bool is_right = read_count(value, &count) && count >= 1 && count <= kMostThreads;
    out->thread_count = static_cast<uint32_t>(count);
    return is_right ? "" : "a number from 1 to 64";
}

quire_status settle_sizes(Options *out, quire_error *error) {
    if (out->directory.empty()) {
        return fail(error, QUIRE_E_ARG, "option 'directory' is missing: it says where values are");
    }
    if (out->capacity_bytes == 0) out->capacity_bytes = 16 * kGiB;
    if (out->segment_bytes == 0) {
        out->segment_bytes =
            std::clamp(out->capacity_bytes / 8, kLeastSegment, uint64_t{256 * kMiB});
    }
    if (out->segment_bytes > out->capacity_bytes / 4) {
        return fail(error, QUIRE_E_ARG,
                    "segment is %llu bytes: it may be at most a quarter of the capacity, %llu",
                    static_cast<unsigned long long>(out->segment_bytes),
                    static_cast<unsigned long long>(out->capacity_bytes / 4));
    }
    out->segment_bytes = out->segment_bytes / kUnitBytes * kUnitBytes;
    return QUIRE_OK;
}

}  // namespace

uint64_t Options::max_record_bytes() const {
    return std::min(segment_bytes - kSegmentHeaderBytes, kMostRecord);
}

uint64_t Options::max_value_bytes() const { return max_record_bytes() - kRecordHeaderBytes; }

quire_status read_options(const quire_store_desc &desc, Options *out, quire_error *error) {
    bool is_given[std::size(kNames)] = {};
    for (uint32_t i = 0; i < desc.option_count; ++i) {
        quire_store_option option;
        const auto *at = reinterpret_cast<const char *>(desc.options);
        std::memcpy(&option, at + size_t{i} * desc.option_stride, sizeof option);
        if (option.name == nullptr || option.value == nullptr) {
            return fail(error, QUIRE_E_ARG, "option %u has no name or no value", i);
        }
        std::string_view name = option.name;
        const auto *known = std::find(std::begin(kNames), std::end(kNames), name);
        if (known == std::end(kNames)) {
            return fail(error, QUIRE_E_ARG,
                        "there is no option '%.64s'; there are directory, capacity, segment, "
                        "durability, io, threads and direct",
                        option.name);
        }
        bool &is_known = is_given[known - kNames];
        if (is_known) return fail(error, QUIRE_E_ARG, "option '%s' is given twice", *known);
        is_known = true;
        const char *wanted = read_one(name, option.value, out);
        if (*wanted != '\0') {
            return fail(error, QUIRE_E_ARG, "option '%s' is '%.64s'; it must be %s", *known,
                        option.value, wanted);
        }
    }
    return settle_sizes(out, error);
}

}  // namespace quire::disk
