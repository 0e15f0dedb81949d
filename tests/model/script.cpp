// SPDX-License-Identifier: Apache-2.0

#include "script.hpp"

#include <algorithm>
#include <random>
#include <sstream>

#include "tests/sim/op.hpp"

namespace quire::model {

namespace {

constexpr int kSlots = 10;
constexpr char kGroup[] = "group";

// The fields of each operation, in the order of Op::args.
constexpr struct {
    const char *name, *fields;
} kLines[] = {
    {"config", "block_tokens host_blocks watermark flags"},
    {kGroup, "kind window sinks blocks"},
    {"create", "seq ns salt priority cross"},
    {"end", "seq drop_prefix"},
    {"begin", "queue preempt how"},
    {"preempt", "seq how"},
    {"add", "seq doc tokens max drafts ahead unknown tree hits"},
    {"drop", "seq"},
    {"abort", ""},
    {"commit", ""},
    {"finish", "which failed"},
    {"fork", "seq child count"},
    {"truncate", "seq count"},
    {"accept", "seq count"},
    {"path", "seq pick"},
    {"set", "seq count doc"},
    {"probe", "seq doc tokens"},
    {"reset", ""},
    {"migrate", "percent host"},
};

std::string fields_of(const std::string &name) {
    for (const auto &line : kLines) {
        if (name == line.name) return line.fields;
    }
    throw "unknown operation: " + name;
}

// Advances *arg past the operation's own fields.
std::string line_of(const std::string &name, const int **arg) {
    std::string text = name;
    std::istringstream fields(fields_of(name));
    for (std::string field; fields >> field; ++*arg) {
        if (**arg != 0) text += " " + field + "=" + std::to_string(**arg);
    }
    return text;
}

// Plain arithmetic on the generator's words, the same on every machine.
class Dice {
 public:
    explicit Dice(uint64_t seed) : words_(seed) {}
    int below(int limit) { return static_cast<int>(words_() % static_cast<uint64_t>(limit)); }
    bool one_in(int n) { return below(n) == 0; }

 private:
    std::mt19937_64 words_;
};

Op config_op(Dice *dice) {
    // kind, window, sinks, blocks: full 0, window 1, chunked 2, latent 3, cross 4
    const std::vector<int> shapes[] = {{0, 0, 0, 24},
                                       {0, 0, 0, 40},
                                       {0, 0, 0, 30, 1, 9, 0, 26},
                                       {1, 10, 0, 24},
                                       {0, 0, 0, 28, 3, 0, 0, 22},
                                       {1, 7, 0, 30, 0, 0, 0, 36},
                                       {1, 9, 5, 30},
                                       {0, 0, 0, 30, 1, 6, 3, 28},
                                       {2, 12, 0, 26},
                                       {0, 0, 0, 30, 2, 10, 0, 26},
                                       {1, 6, 9, 30, 2, 8, 0, 30},
                                       {0, 0, 0, 30, 4, 0, 0, 16}};
    const std::vector<int> &shape = shapes[dice->below(12)];
    int block_tokens = dice->one_in(3) ? 8 : 4;
    int host_blocks = dice->one_in(3) ? 0 : 8 + dice->below(40);
    int watermark = dice->one_in(4) ? 2 : 0;
    int flags = (dice->one_in(10) ? 1 : 0) | (dice->one_in(3) ? 2 : 0);
    Op op{"config", {block_tokens, host_blocks, watermark, flags}};
    op.args.insert(op.args.end(), shape.begin(), shape.end());
    return op;
}

Op step_op(Dice *dice) {
    int slot = dice->below(kSlots);
    switch (dice->below(16)) {
        case 0:
            return {"preempt", {slot, dice->below(3)}};
        case 1:
            return {"drop", {slot}};
        case 2:
        case 3:
            return {"commit", {}};
        case 4:
            return dice->one_in(3) ? Op{"abort", {}} : Op{"commit", {}};
        default: {
            int count = dice->one_in(3) ? dice->below(40) : 1 + dice->below(4);
            int drafts = dice->one_in(4) ? std::min(count, dice->below(8)) : 0;
            int chunk = drafts == 0 && dice->one_in(4) ? 1 + dice->below(12) : 0;
            int lookahead = dice->one_in(6) ? dice->below(6) : 0;
            int unknown = drafts == 0 && dice->one_in(5) ? 1 : 0;
            int tree = drafts != 0 && dice->one_in(2) ? 1 + dice->below(6) : 0;
            return {"add",
                    {slot, dice->below(5), count, chunk, drafts, lookahead, unknown, tree, 0}};
        }
    }
}

Op idle_op(Dice *dice) {
    int slot = dice->below(kSlots);
    switch (dice->below(20)) {
        case 0:
        case 1:
        case 2:
            return {"create",
                    {slot, dice->below(3), dice->below(2), dice->below(3),
                     dice->one_in(2) ? dice->below(14) : 0}};
        case 3:
            return {"end", {slot, dice->one_in(5) ? 1 : 0}};
        case 4:
            return {"fork", {slot, dice->below(kSlots), dice->below(60)}};
        case 5:
            return {"truncate", {slot, dice->below(50)}};
        case 6:
            return {"accept", {slot, dice->below(5)}};
        case 7:
            return {"path", {slot, dice->below(40)}};
        case 8:
        case 9:
            return {"set", {slot, 1 + dice->below(3), dice->below(5)}};
        case 10:
            return {"probe", {slot, dice->below(5), dice->below(40)}};
        case 11:
        case 12:
        case 13:
            return {"finish", {dice->below(3), dice->one_in(8) ? 1 : 0}};
        case 14:
            return dice->one_in(30) ? Op{"reset", {}} : Op{"finish", {0, 0}};
        default:
            return {"begin", {dice->one_in(5) ? 1 : 0, dice->one_in(2) ? 1 : 0, dice->below(3)}};
    }
}

// The slots that hold a sequence, if nothing was refused.
class Slots {
 public:
    void note(const Op &op) {
        if (op.name == "create") live_[op.args[0]] = true;
        if (op.name == "end") live_[op.args[0]] = false;
        if (op.name == "fork" && live_[op.args[0]]) live_[op.args[1]] = true;
    }
    // The given slot, or the next one that holds a sequence.
    int live_from(int slot) const {
        for (int i = 0; i < kSlots; ++i) {
            if (live_[(slot + i) % kSlots]) return (slot + i) % kSlots;
        }
        return slot;
    }

 private:
    bool live_[kSlots] = {};
};

}  // namespace

std::string Op::text() const {
    const int *arg = args.data();
    std::string text = line_of(name, &arg);
    while (arg != args.data() + args.size()) text += "\n" + line_of(kGroup, &arg);
    return text;
}

// Both sides refuse an operation that makes no sense at its place.
Script make_script(uint64_t seed, int length) {
    Dice dice(seed), limits(seed + 1);
    Script script{config_op(&dice)};
    Slots slots;
    bool open = false;
    while (static_cast<int>(script.size()) < length) {
        Op op = open && !dice.one_in(6) ? step_op(&dice) : idle_op(&dice);
        // Drawn apart, so that a seed's script is otherwise what it was before there were limits.
        if (op.name == "add" && limits.one_in(10)) op.args.back() = limits.below(30) - 1;
        bool to_live = op.name == "add" || op.name == "path" || op.name == "accept";
        if (to_live && !dice.one_in(12)) op.args[0] = slots.live_from(op.args[0]);
        slots.note(op);
        if (op.name == "begin") open = true;
        if (op.name == "commit" || op.name == "abort") open = false;
        script.push_back(op);
    }
    return script;
}

Script parse_script(const std::string &text) {
    Script script;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::string name = line.substr(0, line.find(' '));
        if (name.empty()) continue;
        if (name != kGroup) script.push_back({name, {}});
        if (script.empty()) throw std::string("the first line is a group, not a config");
        for (uint64_t value : sim::parse_fields(line, fields_of(name))) {
            script.back().args.push_back(static_cast<int>(value));
        }
    }
    return script;
}

std::string script_text(const Script &script) {
    std::string out;
    for (const Op &op : script) out += op.text() + "\n";
    return out;
}

int parent_of(int tree, int draft) {
    return tree == 0 ? draft - 1 : (draft * 5 + tree * 7) % (draft + 1) - 1;
}

uint32_t token_of(int content, int position) {
    int shared = 6 + 7 * content;  // content 0 leaves the common prefix first
    if (position < shared) return static_cast<uint32_t>(1 + position % 11);
    return static_cast<uint32_t>(100 * (content + 1) + position % 13);
}

}  // namespace quire::model
