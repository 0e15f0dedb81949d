// SPDX-License-Identifier: Apache-2.0
//
// model_file: any bytes as the weights and as the tokenizer of the example engine.
//
// The first byte's bit 0 chooses the tokenizer. A refusal is a Failure; any other exception is a
// finding.
//
// Threads: none.

#include <string>

#include "bytes.hpp"
#include "examples/engine/failure.hpp"
#include "examples/engine/model.hpp"
#include "examples/engine/tokenizer.hpp"
#include "in_memory.hpp"

namespace {

using namespace quire::fuzz;

constexpr size_t kVocabulary = 259;  // the least that is accepted: 3 marks and the bytes

void read_tokenizer(const std::string &path) {
    engine::Tokenizer tokenizer = engine::Tokenizer::load(path, kVocabulary);
    std::vector<uint32_t> tokens = tokenizer.encode("one two\n");
    for (uint32_t token : tokens) {
        require(token < kVocabulary, "a token is one of the vocabulary");
        tokenizer.decode(engine::kBosToken, token);
    }
}

void read_weights(const std::string &path) {
    engine::Model model = engine::Model::load(path);
    const engine::ModelConfig &config = model.config();
    require(model.classifier().size() == config.vocab_size * config.dim,
            "an accepted model has all of its weights");
    for (size_t layer = 0; layer < config.layer_count; ++layer) {
        require(model.layer(layer).up.size() == config.hidden_dim * config.dim,
                "an accepted model has all of its weights");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    Bytes input(data, size_bytes);
    bool is_tokenizer = (input.byte() & 1) != 0;
    std::vector<uint8_t> rest = input.rest();
    InMemory file(rest.data(), rest.size());
    try {
        is_tokenizer ? read_tokenizer(file.path()) : read_weights(file.path());
    } catch (const engine::Failure &failure) {
        require(failure.what()[0] != 0, "a refusal says why");
    }
    return 0;
}
