// SPDX-License-Identifier: Apache-2.0

#include "sampler.hpp"

#include "random.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace engine {
namespace {

double gumbel(uint64_t bits) { return -std::log(-std::log(unit_interval(bits))); }

}  // namespace

Choice choose(std::span<const float> logits, float temperature, const DrawKey &key) {
    const uint64_t draw = mix(mix(mix(key.seed, key.request), key.sample), key.position);
    double best = -std::numeric_limits<double>::infinity();
    double second = best;
    Choice choice;
    for (size_t token = 0; token < logits.size(); ++token) {
        double score = logits[token];
        if (temperature > 0.0F) {
            score = score / temperature + gumbel(mix(draw, token));
        }
        if (score > best) {
            second = best;
            best = score;
            choice.token = static_cast<uint32_t>(token);
        } else if (score > second) {
            second = score;
        }
    }
    const double scale = std::max(std::abs(best), std::abs(second));
    choice.tie = best - second <= kTieRelative * scale;
    return choice;
}

}  // namespace engine
