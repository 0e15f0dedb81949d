// SPDX-License-Identifier: Apache-2.0

#include "core/scales/calibration.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "core/base/hash.hpp"

namespace quire {

static_assert(std::endian::native == std::endian::little, "the format's numbers are read as such");

namespace {

uint64_t checksum(const uint8_t *bytes, uint64_t size_bytes) {
    CalibrationHeader header;
    std::memcpy(&header, bytes, sizeof header);
    header.checksum = 0;
    return XXH3_64bits_withSeed(bytes + sizeof header, size_bytes - sizeof header,
                                XXH3_64bits(&header, sizeof header));
}

void seal(uint8_t *bytes, uint64_t size_bytes) {
    uint64_t sum = checksum(bytes, size_bytes);
    std::memcpy(bytes + offsetof(CalibrationHeader, checksum), &sum, sizeof sum);
}

}  // namespace

CalibrationLayer Calibration::layer(uint32_t layer) const {
    CalibrationLayer record;
    std::memcpy(&record, bytes_ + sizeof header_ + uint64_t{layer} * sizeof record, sizeof record);
    return record;
}

void Calibration::read_numbers(uint32_t layer, float *to) const {
    each_layer([&](uint32_t i, const CalibrationLayer &record, const uint8_t *numbers) {
        if (i == layer) std::memcpy(to, numbers, uint64_t{record.kv_heads} * 2 * sizeof *to);
    });
}

Status Calibration::check_layers() const {
    if (header_.layer_count == 0 || header_.layer_count > kMaxLayers ||
        numbers_at() > header_.size_bytes) {
        return fail(QUIRE_E_ARG, "damaged calibration: its header says {} layers",
                    header_.layer_count);
    }
    uint64_t end = numbers_at();  // below 2^45: 4,096 layers of less than 2^32 heads
    for (uint32_t i = 0; i < header_.layer_count; ++i) {
        CalibrationLayer record = layer(i);
        bool is_shape = record.kv_heads != 0 && record.k_head_dim != 0 && record.v_head_dim != 0;
        if (!is_shape || record.reserved0 != 0) {
            return fail(QUIRE_E_ARG, "damaged calibration: layer {} has an invalid shape", i);
        }
        end += uint64_t{record.kv_heads} * 2 * sizeof(float);
    }
    if (end == header_.size_bytes) return Status{};
    return fail(QUIRE_E_ARG, "damaged calibration: its layers need {} bytes, it has {}", end,
                header_.size_bytes);
}

Status Calibration::check_numbers() const {
    constexpr uint32_t kInfinity = 0x7F800000u;
    uint32_t bad = header_.layer_count;
    each_layer([&](uint32_t i, const CalibrationLayer &record, const uint8_t *numbers) {
        for (uint64_t k = 0; k < uint64_t{record.kv_heads} * 2; ++k) {
            if (std::bit_cast<uint32_t>(number_at(numbers, k)) >= kInfinity && bad > i) bad = i;
        }
    });
    if (bad == header_.layer_count) return Status{};
    return fail(QUIRE_E_ARG,
                "damaged calibration: layer {} holds a number that is negative, infinite or NaN",
                bad);
}

Status Calibration::open(const void *bytes, uint64_t size_bytes, Calibration *out) {
    Calibration read;
    read.bytes_ = static_cast<const uint8_t *>(bytes);
    if (bytes == nullptr) return fail(QUIRE_E_ARG, "the calibration is NULL");
    if (size_bytes < sizeof read.header_) {
        return fail(QUIRE_E_ARG, "damaged calibration: {} bytes, but a header takes {}", size_bytes,
                    sizeof read.header_);
    }
    std::memcpy(&read.header_, bytes, sizeof read.header_);
    if (read.header_.magic != kCalibrationMagic) {
        return fail(QUIRE_E_ARG, "these bytes are not a calibration: wrong magic");
    }
    if (read.header_.version != kCalibrationVersion) {
        return fail(QUIRE_E_INCOMPATIBLE, "the calibration's version is {}, this library reads {}",
                    read.header_.version, kCalibrationVersion);
    }
    if (read.header_.size_bytes != size_bytes) {
        return fail(QUIRE_E_ARG, "damaged calibration: {} bytes, but its header says {}",
                    size_bytes, read.header_.size_bytes);
    }
    if (read.header_.checksum != checksum(read.bytes_, size_bytes)) {
        return fail(QUIRE_E_ARG, "damaged calibration: its checksum does not match");
    }
    QUIRE_TRY(read.check_layers());
    QUIRE_TRY(read.check_numbers());
    *out = read;
    return Status{};
}

uint64_t calibration_bytes(const Geometry &geometry, const LayerInGroup *places) {
    uint64_t size =
        sizeof(CalibrationHeader) + uint64_t{geometry.layer_count} * sizeof(CalibrationLayer);
    for (uint32_t layer = 0; layer < geometry.layer_count; ++layer) {
        size += uint64_t{geometry.groups[places[layer].group].kv_heads} * 2 * sizeof(float);
    }
    return size;
}

void write_calibration(const Geometry &geometry, const LayerInGroup *places, const float *numbers,
                       uint64_t size_bytes, uint8_t *out) {
    CalibrationHeader header{kCalibrationMagic, kCalibrationVersion, geometry.layer_count,
                             size_bytes, 0};
    std::memcpy(out, &header, sizeof header);
    uint64_t at = sizeof header;
    for (uint32_t layer = 0; layer < geometry.layer_count; ++layer) {
        const GroupGeometry &g = geometry.groups[places[layer].group];
        CalibrationLayer record{g.kv_heads, g.k_head_dim, g.v_head_dim, 0};
        std::memcpy(out + at, &record, sizeof record);
        at += sizeof record;
    }
    std::memcpy(out + at, numbers, size_bytes - at);
    seal(out, size_bytes);
}

Status check_mergeable(const Calibration &a, const Calibration &b) {
    if (a.layer_count() != b.layer_count()) {
        return fail(QUIRE_E_ARG,
                    "the calibrations belong to different models: one has {} layers, the other {}",
                    a.layer_count(), b.layer_count());
    }
    for (uint32_t i = 0; i < a.layer_count(); ++i) {
        CalibrationLayer first = a.layer(i), second = b.layer(i);
        if (std::memcmp(&first, &second, sizeof first) == 0) continue;
        return fail(QUIRE_E_ARG,
                    "the calibrations belong to different models: layer {} differs in KV heads or "
                    "head dims",
                    i);
    }
    return Status{};
}

void merge_calibrations(const Calibration &a, const Calibration &b, uint8_t *out) {
    const uint8_t *first = a.numbers(), *second = b.numbers();
    uint64_t size_bytes = a.size_bytes(), count = a.number_count();
    uint64_t front = size_bytes - count * sizeof(float);
    std::memmove(out, first - front, front);  // header and records are the same in both
    for (uint64_t k = 0; k < count; ++k) {
        float larger = std::max(number_at(first, k), number_at(second, k));
        std::memcpy(out + front + k * sizeof larger, &larger, sizeof larger);
    }
    seal(out, size_bytes);
}

}  // namespace quire
