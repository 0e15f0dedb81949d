// SPDX-License-Identifier: Apache-2.0
//
// op: see op.hpp.
#include "op.hpp"

#include <algorithm>
#include <sstream>

namespace sim {
namespace {

constexpr const char *kNames[] = {
#define SIM_OP(name, fields) #name,
    SIM_OPS(SIM_OP)
#undef SIM_OP
};
constexpr const char *kFields[] = {
#define SIM_OP(name, fields) fields,
    SIM_OPS(SIM_OP)
#undef SIM_OP
};

}  // namespace

const char *op_name(OpKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::string to_text(const Op &op) {
    std::string text = op_name(op.kind);
    std::istringstream fields(kFields[static_cast<size_t>(op.kind)]);
    std::string field;
    for (size_t i = 0; fields >> field; ++i)
        if (op.f[i] != 0 || i == 0) text += " " + field + "=" + std::to_string(op.f[i]);
    return text;
}

std::vector<uint64_t> parse_fields(const std::string &line, const std::string &names) {
    std::vector<std::string> known;
    std::istringstream in(names);
    for (std::string name; in >> name;) known.push_back(name);
    std::vector<uint64_t> values(known.size(), 0);
    std::istringstream words(line);
    std::string word;
    words >> word;
    while (words >> word) {
        const size_t equal = word.find('=');
        if (equal == std::string::npos) throw "expected field=number, found " + word;
        size_t at = 0;
        while (at < known.size() && word.compare(0, equal, known[at]) != 0) ++at;
        if (at == known.size()) throw "unknown field in: " + line;
        values[at] = std::stoull(word.substr(equal + 1));
    }
    return values;
}

Op parse_op(const std::string &line) {
    const std::string name = line.substr(0, line.find(' '));
    for (size_t kind = 0; kind < static_cast<size_t>(OpKind::count); ++kind) {
        if (name != kNames[kind]) continue;
        Op op;
        op.kind = static_cast<OpKind>(kind);
        const std::vector<uint64_t> values = parse_fields(line, kFields[kind]);
        for (size_t i = 0; i < values.size(); ++i) op.f[i] = static_cast<uint32_t>(values[i]);
        return op;
    }
    throw "unknown operation: " + name;
}

Op make_op(OpKind kind, std::initializer_list<uint32_t> fields) {
    Op op;
    op.kind = kind;
    std::copy(fields.begin(), fields.end(), op.f.begin());
    return op;
}

}  // namespace sim
