// SPDX-License-Identifier: Apache-2.0

#include "agreement.hpp"

#include "shapes.hpp"

namespace quire::conformance {

void expect_random_shapes_agree(const std::vector<uint64_t> &seeds, const FindSpec &find) {
    Rig rig;
    uint32_t run_count = 0;
    double worst = 0.0;
    for (uint64_t seed : seeds) {
        AttentionSpec spec;
        if (!find(rig, seed, &spec)) continue;
        ++run_count;
        AttentionCase attention(spec);
        AttentionResult result = attention.run(rig);
        double error = attention.compare(result);
        ASSERT_LE(error, 1.0) << spec.text();
        worst = std::max(worst, error);
        spec.poison = 0x7F;  // NaN in f16, 3e38 in the others
        ASSERT_TRUE(AttentionCase(spec).run(rig) == result) << "reads poison; " << spec.text();
    }
    if (run_count == 0) GTEST_SKIP() << "the backend offers no such shape";
    testing::Test::RecordProperty("random_shapes", std::to_string(run_count));
    testing::Test::RecordProperty("largest_error", std::to_string(worst));
}

bool find_variant(Rig &rig, Variant variant, uint64_t seed, AttentionSpec *spec) {
    *spec = random_variant(variant, seed);
    if (is_offered(rig, spec->shape)) return true;
    for (quire_be_attention_query shape : common_shapes()) {
        *spec = random_variant(variant, seed, &shape);
        if (is_offered(rig, spec->shape)) return true;
    }
    return false;
}

}  // namespace quire::conformance
