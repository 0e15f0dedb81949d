// SPDX-License-Identifier: Apache-2.0

#include "activation.hpp"

#include "number.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace engine {
namespace {

struct QType {
    const char *name;
    uint32_t dtype;
};

constexpr QType kQTypes[] = {
    {"f32", QUIRE_DTYPE_F32}, {"f16", QUIRE_DTYPE_F16}, {"bf16", QUIRE_DTYPE_BF16}};

// Calls `convert(number, element)` for each of the model's numbers and its place on the device.
template <typename Element, typename Convert>
void each_element(std::span<float> numbers, void *device, const HeadForm &form, Convert convert) {
    auto *elements = static_cast<Element *>(device);
    for (size_t i = 0; i < numbers.size(); ++i) {
        convert(numbers[i], elements[i / form.model_dim * form.device_dim + i % form.model_dim]);
    }
}

}  // namespace

std::vector<std::string> q_dtype_names() {
    std::vector<std::string> names;
    for (const QType &type : kQTypes) {
        names.push_back(type.name);
    }
    return names;
}

uint32_t q_dtype_of(const std::string &name) {
    return std::find_if(std::begin(kQTypes), std::end(kQTypes),
                        [&](const QType &type) { return name == type.name; })
        ->dtype;
}

Activation::Activation(Owned<quire_memory> memory, uint64_t address, void *host_pointer,
                       HeadForm form, size_t head_count)
    : memory_(std::move(memory)), address_(address), host_pointer_(host_pointer), form_(form) {
    const size_t count = head_count * form.model_dim;
    if (form.is_models_own()) {
        numbers_ = {static_cast<float *>(host_pointer), count};
        return;
    }
    own_ = std::make_unique<float[]>(count);
    numbers_ = {own_.get(), count};
    std::memset(host_pointer, 0, head_count * form.bytes());  // pack() leaves the zeros alone
}

void Activation::pack(size_t head_count) const {
    const std::span<float> numbers = numbers_.first(head_count * form_.model_dim);
    if (form_.is_models_own()) {
        return;
    }
    if (form_.dtype == QUIRE_DTYPE_F32) {
        each_element<float>(numbers, host_pointer_, form_,
                            [](float number, float &element) { element = number; });
    } else if (form_.dtype == QUIRE_DTYPE_F16) {
        each_element<uint16_t>(numbers, host_pointer_, form_,
                               [](float number, uint16_t &element) { element = f16_of(number); });
    } else {
        each_element<uint16_t>(numbers, host_pointer_, form_,
                               [](float number, uint16_t &element) { element = bf16_of(number); });
    }
}

void Activation::unpack(size_t head_count) const {
    const std::span<float> numbers = numbers_.first(head_count * form_.model_dim);
    if (form_.is_models_own()) {
        return;
    }
    if (form_.dtype == QUIRE_DTYPE_F32) {
        each_element<float>(numbers, host_pointer_, form_,
                            [](float &number, float element) { number = element; });
    } else if (form_.dtype == QUIRE_DTYPE_F16) {
        each_element<uint16_t>(numbers, host_pointer_, form_, [](float &number, uint16_t element) {
            number = float_of_f16(element);
        });
    } else {
        each_element<uint16_t>(numbers, host_pointer_, form_, [](float &number, uint16_t element) {
            number = float_of_bf16(element);
        });
    }
}

}  // namespace engine
