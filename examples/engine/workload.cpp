// SPDX-License-Identifier: Apache-2.0

#include "workload.hpp"

#include "random.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace engine {
namespace {

constexpr std::array<const char *, 5> kSystemPrompts = {
    "You are a patient librarian. Answer in one short paragraph, name the shelf where a book "
    "stands, and never invent a title that the catalogue does not have.",
    "You are the night clerk of a small hotel by the sea. Be brief and kind, offer the breakfast "
    "hours, and hand anything about payment to the manager.",
    "You review patches for a bookbinding machine. List what is wrong first, then what could be "
    "simpler, and quote the line you mean.",
    "You translate recipes from old cookery books into metric units. Keep the order of the steps, "
    "and say so when a quantity was only guessed.",
    "You teach arithmetic to children of eight. Ask one question at a time and praise the way, "
    "not the result.",
};

constexpr std::array<const char *, 9> kQuestions = {
    "Where do I find something about paper?",
    "I arrive after midnight, is that all right?",
    "The third page comes out upside down, why?",
    "How much is half a gill of cream, and may I use milk instead?",
    "What is seven times eight?",
    "My neighbour told me that it could not be done before Thursday. Can it?",
    "Please say that again with fewer words.",
    "Is there a shorter way?",
    "What would you do in my place, if there were only an hour left and no tools at hand?",
};

size_t pick(uint64_t seed, uint64_t counter, size_t count) {
    return static_cast<size_t>(mix(seed, counter) % count);
}

}  // namespace

std::vector<Request> chat_workload(const Tokenizer &tokenizer, size_t seq_len, uint64_t seed,
                                   uint32_t count) {
    std::vector<Request> chats;
    size_t arrival_step = 0;
    for (uint32_t id = 0; id < count; ++id) {
        const uint64_t chat_seed = mix(seed, id);
        const std::string system = kSystemPrompts[pick(chat_seed, 0, kSystemPrompts.size())];
        const std::string question = kQuestions[pick(chat_seed, 1, kQuestions.size())];
        Request chat;
        chat.id = id;
        chat.prompt = tokenizer.encode(system + "\n" + question);
        // At most half of the room for the prompt, so that every chat has something to generate.
        chat.prompt.resize(std::min(chat.prompt.size(), seq_len / 2));
        chat.generate_limit = std::min(24 + pick(chat_seed, 2, 73), seq_len - chat.prompt.size());
        // Every fourth chat shows the user several answers to choose from.
        chat.sample_count = id % 4 == 3 ? 2 + static_cast<uint32_t>(pick(chat_seed, 3, 3)) : 1;
        chat.temperature = chat.sample_count > 1 ? 0.8F : 0.0F;
        chat.arrival_step = arrival_step;
        arrival_step += pick(chat_seed, 4, 7);
        chats.push_back(std::move(chat));
    }
    return chats;
}

}  // namespace engine
