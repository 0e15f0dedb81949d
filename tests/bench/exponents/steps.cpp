// SPDX-License-Identifier: Apache-2.0
//
// Steps: the cost of items, and of taking them back.

#include "case.hpp"
#include "engine.hpp"

namespace quire::bench {

namespace {

// Each has a block of its own, and computes one token.
Items newcomers(Engine *engine, uint32_t count) {
    Items items;
    for (uint32_t i = 0; i < count; ++i) items.add(engine->create({}), {i});
    return items;
}

double decode_by_length(uint32_t tokens) {
    constexpr uint32_t steps = 2000;
    Engine engine(with((tokens + steps) / kBlockTokens + 64));
    quire_seq seq = engine.computed(prompt(1, tokens));
    Items item;
    item.add(seq, {7});
    return seconds_of([&] {
               for (uint32_t i = 0; i < steps; ++i) engine.run(item);
           }) /
           steps;
}

double decode_by_items(uint32_t count) {
    constexpr uint32_t steps = 64;
    Engine engine(with(count * (2 + steps / kBlockTokens) + 64, count));
    Items items = newcomers(&engine, count);
    return seconds_of([&] {
               for (uint32_t i = 0; i < steps; ++i) engine.run(items);
           }) /
           steps;
}

double prefill(uint32_t tokens) {
    Engine engine(with(tokens / kBlockTokens + 64));
    engine.end(engine.computed(prompt(1, tokens)), QUIRE_END_DROP_PREFIX);
    Items items;
    items.add(engine.create({}), prompt(1, tokens));
    return seconds_of([&] { engine.run(items); });
}

double abort(uint32_t tokens) {
    Engine engine(with(tokens / kBlockTokens + 64));
    Items items;
    items.add(engine.create({}), prompt(1, tokens));
    engine.abort(engine.begin(items));
    quire_step step = engine.begin(items);
    return seconds_of([&] { engine.abort(step); });
}

double drop(uint32_t count) {
    Engine engine(with(2 * count + 64, count));
    Items items = newcomers(&engine, count);
    engine.abort(engine.begin(items));
    quire_step step = engine.begin(items);
    uint32_t dropped_count = 0;
    quire_seq dropped = 0;
    double seconds = seconds_of([&] {
        engine.must(engine.api.step_drop(engine.cache, step, items.items[0].seq, &dropped, 1,
                                         &dropped_count, engine.error()));
    });
    engine.abort(step);
    return seconds;
}

double failed_step(uint32_t count) {
    Engine engine(with(2 * count + 64, count));
    Items items = newcomers(&engine, count);
    engine.run(items);
    quire_step step = engine.begin(items);
    engine.commit(step);
    return seconds_of([&] { engine.finish(step, QUIRE_STEP_FAILED); });
}

// Items that fail after others have found their blocks, so that those lose them too.
double failed_step_with_takers(uint32_t count) {
    Engine engine(with(4 * count + 64, 2 * count));
    Items first, second;
    for (uint32_t i = 0; i < count; ++i) {
        std::vector<uint32_t> tokens = prompt(i, kBlockTokens + 1);
        first.add(engine.create({}), tokens);
        second.add(engine.create({}), tokens);
    }
    quire_step failing = engine.begin(first);
    engine.commit(failing);
    quire_step taking = engine.begin(second);
    engine.commit(taking);
    double seconds = seconds_of([&] { engine.finish(failing, QUIRE_STEP_FAILED); });
    engine.finish(taking);
    return seconds;
}

double mass_preemption(uint32_t victims) {
    Engine engine(with(victims + 4, victims + 4));
    quire_seq oldest = engine.computed(prompt(1, kBlockTokens));
    for (uint32_t i = 0; i < victims; ++i) engine.computed({i});
    Items item;
    item.add(oldest, prompt(2, victims * kBlockTokens));
    quire_step step = engine.begin(item, QUIRE_STEP_MAY_PREEMPT);
    engine.abort(step);
    double seconds = seconds_of([&] { step = engine.begin(item, QUIRE_STEP_MAY_PREEMPT); });
    engine.abort(step);
    return seconds;
}

double preempt(uint32_t tokens) {
    Engine engine(with(tokens / kBlockTokens + 64));
    quire_seq seq = engine.computed(prompt(1, tokens));
    uint32_t freed = 0;
    double seconds = 0;
    for (int i = 0; i < 2; ++i) {
        quire_step step = engine.begin({});
        seconds = seconds_of([&] {
            engine.must(engine.api.step_preempt(engine.cache, step, seq, QUIRE_PREEMPT_RECOMPUTE,
                                                &freed, engine.error()));
        });
        engine.abort(step);
    }
    return seconds;
}

}  // namespace

std::vector<Case> step_cases() {
    return {
        {"decode_step_by_length", "quire_step_begin", "known tokens", 0, 1 << 14, decode_by_length},
        {"decode_step_by_items", "quire_step_begin", "items", 1, 1 << 6, decode_by_items},
        {"prefill", "quire_step_begin", "tokens", 1, 1 << 14, prefill},
        {"abort", "quire_step_abort", "tokens", 1, 1 << 14, abort},
        {"drop", "quire_step_drop", "items added since", 1, 1 << 8, drop},
        {"failed_step", "quire_step_finish", "items", 1, 1 << 8, failed_step},
        {"failed_step_with_takers", "quire_step_finish", "items", 1, 1 << 8,
         failed_step_with_takers},
        {"mass_preemption", "quire_step_begin", "victims", 1, 1 << 8, mass_preemption},
        {"preempt", "quire_step_preempt", "tokens", 1, 1 << 14, preempt},
    };
}

}  // namespace quire::bench
