// SPDX-License-Identifier: Apache-2.0
//
// retrieval: a haystack in a paged cache on the cpu backend, and questions about it: one layer,
// written in chunks and read through block tables, as an engine does it.
#pragma once

#include <functional>

#include "haystack.hpp"
#include "tests/device/cpu_cache.hpp"

namespace quire::test {

struct Format {
    const char *name;
    uint32_t dtype;
    uint32_t scale;       // QUIRE_SCALE_*
    double weight_error;  // limit for a needle's weight, against f32's
};

class Retrieval {
 public:
    Retrieval(const Haystack &haystack, const Format &format);
    ~Retrieval();
    Retrieval(const Retrieval &) = delete;
    Retrieval &operator=(const Retrieval &) = delete;

    void must(quire_status status) { ASSERT_GE(status, 0) << error_.message; }

    // Writes the text, in chunks. with_values false: with zeros for V.
    void read(bool with_values = true);

    // The word that each query head of each row finds, [kNeedles rows][kQHeads]. Rows are forks of
    // the text with one more token; head h of row r asks for needle (r + h) % kNeedles, by the
    // marker that `marker` returns.
    //
    // spoil  receives row 0's block table before attention reads it.
    using Marker = uint32_t (*)(uint32_t needle);
    using Spoil = std::function<void(int32_t *blocks)>;
    std::vector<std::optional<uint32_t>> ask(Marker marker = Haystack::marker,
                                             const Spoil &spoil = nullptr);
    static uint32_t needle_of(uint32_t row, uint32_t head) { return (row + head) % kNeedles; }
    // The heads' results in the last ask(), [kNeedles][kQHeads][head_dim].
    const float *attended() const { return arrays_[kOut].values; }

    // The scale of a position's K or V in the pool.
    float &scale(uint32_t position, uint32_t kv_head, bool is_v);

 private:
    static constexpr uint32_t kChunk = 512;
    enum { kQ, kK, kV, kOut, kArrays };
    struct Array {
        quire_memory *memory = nullptr;
        uint64_t address = 0;
        float *values = nullptr;
    };

    Array make_array();
    void create_cache(const Format &format);
    void create_batch();
    quire_step begin(const std::vector<quire_step_item> &items, const std::vector<uint32_t> &words);
    void write();
    void attend();
    void finish(quire_step step);

    const quire_api &api_ = library();
    const Haystack &haystack_;
    quire_error error_{};
    quire_instance *instance_ = nullptr;
    quire_device *device_ = nullptr;
    quire_queue *queue_ = nullptr;
    quire_cache *cache_ = nullptr;
    quire_batch *batch_ = nullptr;
    quire_seq text_ = 0;
    Array arrays_[kArrays];
};

}  // namespace quire::test
