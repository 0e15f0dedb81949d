// SPDX-License-Identifier: Apache-2.0

#include "calibration.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "library.hpp"

namespace quire::cli {

namespace {

using Bytes = std::vector<char>;

// 4,096 layers of 64 KV heads take 2.1 MiB.
constexpr size_t kMostBytes = size_t{4} << 20;

Bytes read_file(const std::string &path) {
    std::error_code failed;
    if (std::filesystem::is_directory(path, failed)) throw Failure(path + " is a folder", kUsage);
    std::ifstream in(path, std::ios::binary);
    if (!in) throw Failure(path + " cannot be read: " + std::strerror(errno), kUsage);
    Bytes bytes(kMostBytes + 1);
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (in.bad()) throw Failure(path + " cannot be read: " + std::strerror(errno), kUsage);
    bytes.resize(static_cast<size_t>(in.gcount()));
    if (bytes.size() > kMostBytes) throw Failure(path + ": more than 4 MiB", kUsage);
    return bytes;
}

// Writes under another name first: OUT may be one of the inputs, and must never be half written.
void write_file(const std::string &path, const Bytes &bytes) {
    std::string part = path + ".part";
    std::ofstream out(part, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    std::error_code failed;
    if (out) std::filesystem::rename(part, path, failed);
    if (out && !failed) return;
    std::string why = failed ? failed.message() : std::strerror(errno);
    std::filesystem::remove(part, failed);
    throw Failure(path + " cannot be written: " + why, kFailed);
}

// The error names the file that was refused.
void check_file(quire_status status, const std::string &path, const Error &error) {
    if (status < 0) throw Failure(path + ": " + error.message, kUsage);
}

quire_calibration_info info_of(const Bytes &bytes, const std::string &path) {
    auto info = described<quire_calibration_info>();
    Error error;
    check_file(library().calibration_get_info(bytes.data(), bytes.size(), &info, &error), path,
               error);
    return info;
}

void merge_into(Bytes *merged, const Bytes &other, const std::string &path) {
    Error error;
    uint64_t size_bytes = 0;
    check_file(
        library().calibration_merge(merged->data(), merged->size(), other.data(), other.size(),
                                    merged->data(), merged->size(), &size_bytes, &error),
        path, error);
}

struct Layer {
    quire_calibration_layer info;
    std::vector<float> amax;  // [2][kv_heads]

    std::vector<float> side(uint32_t index) const {
        auto first = amax.begin() + index * info.kv_heads;
        return {first, first + info.kv_heads};
    }
};

Layer layer_of(const Bytes &bytes, uint32_t index, uint32_t max_kv_heads) {
    Layer layer{described<quire_calibration_layer>(), std::vector<float>(size_t{2} * max_kv_heads)};
    Error error;
    check(library().calibration_get_layer(bytes.data(), bytes.size(), index, &layer.info,
                                          layer.amax.data(),
                                          static_cast<uint32_t>(layer.amax.size()), &error),
          error);
    layer.amax.resize(size_t{2} * layer.info.kv_heads);
    return layer;
}

void print_json(const Bytes &bytes, const quire_calibration_info &info) {
    nlohmann::ordered_json out;
    out["version"] = info.version;
    out["layer_count"] = info.layer_count;
    out["unwritten"] = info.unwritten;
    out["layers"] = nlohmann::ordered_json::array();
    for (uint32_t i = 0; i < info.layer_count; ++i) {
        Layer layer = layer_of(bytes, i, info.max_kv_heads);
        nlohmann::ordered_json row;
        row["kv_heads"] = layer.info.kv_heads;
        row["k_head_dim"] = layer.info.k_head_dim;
        row["v_head_dim"] = layer.info.v_head_dim;
        row["k"] = layer.side(0);
        row["v"] = layer.side(1);
        out["layers"].push_back(row);
    }
    std::printf("%s\n", out.dump(2).c_str());
}

void print_table(const Bytes &bytes, const quire_calibration_info &info) {
    std::printf("%-6s %8s %12s %13s   %12s %13s\n", "layer", "kv heads", "largest K",
                "smallest head", "largest V", "smallest head");
    for (uint32_t i = 0; i < info.layer_count; ++i) {
        Layer layer = layer_of(bytes, i, info.max_kv_heads);
        std::vector<float> k = layer.side(0), v = layer.side(1);
        auto [k_least, k_most] = std::minmax_element(k.begin(), k.end());
        auto [v_least, v_most] = std::minmax_element(v.begin(), v.end());
        std::printf("%-6u %8u %12.6g %13.6g   %12.6g %13.6g\n", i, layer.info.kv_heads,
                    static_cast<double>(*k_most), static_cast<double>(*k_least),
                    static_cast<double>(*v_most), static_cast<double>(*v_least));
    }
    if (info.unwritten == 0) return;
    std::printf(
        "\n%u numbers are 0 because nothing was written there. Merge a run that writes them.\n",
        info.unwritten);
}

}  // namespace

void calibration(const CalibrationOptions &options) {
    if (options.merged.empty() && options.files.size() != 1) {
        throw Failure("several files need --merge OUT", kUsage);
    }
    Bytes bytes = read_file(options.files.front());
    info_of(bytes, options.files.front());
    for (size_t i = 1; i < options.files.size(); ++i) {
        Bytes other = read_file(options.files[i]);
        info_of(other, options.files[i]);
        merge_into(&bytes, other, options.files[i]);
    }
    if (!options.merged.empty()) write_file(options.merged, bytes);
    quire_calibration_info info = info_of(bytes, options.files.front());
    options.json ? print_json(bytes, info) : print_table(bytes, info);
}

}  // namespace quire::cli
