// SPDX-License-Identifier: Apache-2.0
//
// The matrix in a backend's README matches the backend's answers. A row, between the marks
// `<!-- matrix -->` and `<!-- /matrix -->`:
//
//     | full | causal | f32 | f32, int8 | token and head | 1-256 | 1-256 | any | masks | yes |
//
// group, attention, types of q, types of K and V, kinds of scales for those that hold codes, K's
// head dims, V's, block_tokens, options, answer. Each of the five groups must be there, causal and
// not. Whatever a row does not name must be refused. In a latent group K and V have one type and
// kind, and V is no larger; head dims of int4 are even.

#include <fstream>
#include <set>
#include <sstream>

#include "number.hpp"
#include "quire/attention.h"
#include "quire/cache.h"
#include "shapes.hpp"

namespace quire::conformance {

class ReadmeTest : public SubjectTest {
 protected:
    ReadmeTest() : SubjectTest(Needs::attention) {}
};

namespace {

struct Group {
    const char *name;
    uint32_t kind;
    uint32_t window;
};

constexpr Group kGroups[] = {{"full", QUIRE_GROUP_FULL, 0},
                             {"window", QUIRE_GROUP_WINDOW, 9},
                             {"chunked", QUIRE_GROUP_CHUNKED, 9},
                             {"latent", QUIRE_GROUP_LATENT, 0},
                             {"cross", QUIRE_GROUP_CROSS, 0}};

struct Option {
    const char *name;  // "": none
    uint32_t flag;
};

constexpr Option kOptions[] = {{"", 0},
                               {"batch invariant", QUIRE_ATTENTION_BATCH_INVARIANT},
                               {"masks", QUIRE_ATTENTION_MASK},
                               {"sink logits", QUIRE_ATTENTION_SINK_LOGITS},
                               {"soft cap", QUIRE_BE_ATTENTION_SOFT_CAP},
                               {"ALiBi", QUIRE_BE_ATTENTION_ALIBI},
                               {"rope", QUIRE_BE_ATTENTION_ROPE},
                               {"sink tokens", 0}};

struct Range {
    uint32_t low = 0;
    uint32_t high = 0;
    bool has(uint32_t value) const { return value >= low && value <= high; }
};

struct Row {
    Group group;
    bool is_causal;
    std::string q_types;
    std::string types;
    std::string scales;
    Range k_dims;
    Range v_dims;
    std::string options;
    bool is_offered;
};

std::string trimmed(const std::string &text) {
    size_t begin = text.find_first_not_of(' ');
    return begin == std::string::npos ? ""
                                      : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

Range range_of(const std::string &text) {
    Range range;
    if (std::sscanf(text.c_str(), "%u-%u", &range.low, &range.high) != 2) {
        throw std::runtime_error("not a range of head dims: " + text);
    }
    return range;
}

std::vector<Row> read_matrix(const std::string &path) {
    std::ifstream file(path);
    std::vector<Row> rows;
    bool is_inside = false;
    for (std::string line; std::getline(file, line);) {
        if (line == "<!-- matrix -->") is_inside = true;
        if (line == "<!-- /matrix -->") is_inside = false;
        if (!is_inside || line.find("ausal |") == std::string::npos) continue;
        std::vector<std::string> cells;
        std::istringstream in(line.substr(1));
        for (std::string cell; std::getline(in, cell, '|');) cells.push_back(trimmed(cell));
        if (cells.size() != 10) throw std::runtime_error("not ten cells: " + line);
        for (const Group &group : kGroups) {
            if (cells[0] != group.name) continue;
            rows.push_back({group, cells[1] == "causal", cells[2], cells[3], cells[4],
                            range_of(cells[5]), range_of(cells[6]), cells[8], cells[9] == "yes"});
        }
    }
    return rows;
}

bool names(const std::string &list, const char *name) {
    return (", " + list + ",").find(std::string(", ") + name + ",") != std::string::npos;
}

// True if the row names such a K or V, and the combination is valid.
bool says_side(const Row &row, uint32_t dtype, uint32_t kind, uint32_t head_dim) {
    constexpr const char *kKinds[] = {"", "tensor", "head", "token and head"};
    if (!names(row.types, name_of(dtype)) || holds_codes(dtype) != (kind != 0)) return false;
    if (dtype == QUIRE_DTYPE_I4 && head_dim % 2 != 0) return false;
    return kind == 0 || names(row.scales, kKinds[kind]);
}

bool says(const Row &row, const Option &option, const quire_be_attention_query &shape) {
    bool types = names(row.q_types, name_of(shape.q_dtype)) &&
                 says_side(row, shape.k_dtype, shape.k_scale_kind, shape.k_head_dim) &&
                 says_side(row, shape.v_dtype, shape.v_scale_kind, shape.v_head_dim);
    bool dims = row.k_dims.has(shape.k_head_dim) && row.v_dims.has(shape.v_head_dim);
    bool options = option.name[0] == 0 || names(row.options, option.name);
    if (row.group.kind == QUIRE_GROUP_LATENT) {
        dims = dims && shape.v_head_dim <= shape.k_head_dim;
        types = types && shape.k_dtype == shape.v_dtype && shape.k_scale_kind == shape.v_scale_kind;
    }
    return row.is_offered && types && dims && options;
}

quire_be_attention_query shape_of(const Row &row, const Option &option, uint32_t i) {
    const uint32_t k_dims[] = {row.k_dims.low - 1, row.k_dims.low, 64, row.k_dims.high,
                               row.k_dims.high + 1};
    const uint32_t v_dims[] = {row.v_dims.low - 1, row.v_dims.low, 62, row.v_dims.high,
                               row.v_dims.high + 1};
    quire_be_attention_query shape{};
    shape.struct_size = sizeof shape;
    shape.q_heads = 8;
    shape.kv_heads = row.group.kind == QUIRE_GROUP_LATENT ? 1 : 2;
    shape.q_dtype = kValueTypes[i % 3];
    shape.k_dtype = kValueTypes[i / 3 % 3];
    shape.v_dtype = kValueTypes[i / 9 % 3];
    shape.k_head_dim = k_dims[i / 27 % 5];
    shape.v_head_dim = v_dims[i / 135 % 5];
    shape.block_tokens = i / 675 == 0 ? 1 : i / 675 * 50;
    shape.group_kind = row.group.kind;
    shape.window = row.group.window;
    shape.flags = option.flag;
    if (!row.is_causal) shape.flags |= QUIRE_ATTENTION_NOT_CAUSAL;
    if (option.flag == QUIRE_BE_ATTENTION_ROPE) shape.rotated_dim = 2;
    if (std::string(option.name) == "sink tokens") shape.sink_tokens = 3;
    return shape;
}

// Random K and V of codes, including kinds of scales that do not fit them.
void put_codes(uint32_t i, quire_be_attention_query *shape) {
    Dice dice(i);
    auto type = [&] {
        return dice.roll(0, 2) == 0 ? dice.pick(kValueTypes) : dice.pick(kCodeTypes);
    };
    shape->k_dtype = type();
    shape->v_dtype = dice.roll(0, 1) == 0 ? type() : shape->k_dtype;
    auto kind = [&](uint32_t dtype) {
        bool is_any = dice.roll(0, 7) == 0;
        return is_any ? dice.roll(0, 3) : holds_codes(dtype) ? dice.roll(1, 3) : 0;
    };
    shape->k_scale_kind = kind(shape->k_dtype);
    shape->v_scale_kind = dice.roll(0, 1) == 0 && shape->k_dtype == shape->v_dtype
                              ? shape->k_scale_kind
                              : kind(shape->v_dtype);
}

void expect_row_is_true(Rig &rig, const Row &row, const Option &option) {
    constexpr uint32_t kValueShapes = 27 * 25 * 3;
    for (uint32_t i = 0; i < 3 * kValueShapes; ++i) {
        quire_be_attention_query shape = shape_of(row, option, i % kValueShapes);
        if (i >= kValueShapes) put_codes(i, &shape);
        // A rope of 2 elements needs that many elements to turn.
        uint32_t latent = row.group.kind == QUIRE_GROUP_LATENT ? shape.v_head_dim : 0;
        if (shape.rotated_dim != 0 && shape.k_head_dim < latent + 2) continue;
        ASSERT_EQ(is_offered(rig, shape), says(row, option, shape))
            << row.group.name << (row.is_causal ? ", causal, '" : ", not causal, '") << option.name
            << "', " << name_of(shape.q_dtype) << " " << name_of(shape.k_dtype) << " "
            << name_of(shape.v_dtype) << ", scales " << shape.k_scale_kind << " "
            << shape.v_scale_kind << ", dims " << shape.k_head_dim << " " << shape.v_head_dim
            << ", block_tokens " << shape.block_tokens;
    }
}

}  // namespace

TEST_F(ReadmeTest, matrix_is_what_the_backend_answers) {
    if (options().readme.empty()) GTEST_SKIP() << "no --readme was given";
    Rig rig;
    std::set<std::pair<uint32_t, bool>> seen;
    std::vector<Row> rows = read_matrix(options().readme);
    for (const Row &row : rows) {
        seen.insert({row.group.kind, row.is_causal});
        for (const Option &option : kOptions) expect_row_is_true(rig, row, option);
    }
    EXPECT_EQ(rows.size(), 2 * std::size(kGroups));
    EXPECT_EQ(seen.size(), rows.size()) << "each group once, causal and not";
}

}  // namespace quire::conformance
