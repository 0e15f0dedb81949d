// SPDX-License-Identifier: Apache-2.0
//
// The matrix in a backend's README is what the backend answers. A row of it, between the marks
// `<!-- matrix -->` and `<!-- /matrix -->`:
//
//     | causal | yes | f32, f16, bf16 | 1-256 | any | yes |
//
// attention, window, types of q, K and V, head dims, block_tokens, answer. The four rows of causal
// or not and window or not must be there; what a row does not name must be refused.

#include <fstream>
#include <map>
#include <sstream>

#include "number.hpp"
#include "quire/attention.h"
#include "subject.hpp"

namespace quire::conformance {

class ReadmeTest : public SubjectTest {
 protected:
    ReadmeTest() : SubjectTest(Needs::attention) {}
};

namespace {

struct Row {
    bool is_causal;
    bool has_window;
    std::string types;
    uint32_t low;
    uint32_t high;
    bool is_offered;
};

std::string trimmed(const std::string &text) {
    size_t begin = text.find_first_not_of(' ');
    return begin == std::string::npos ? ""
                                      : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
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
        if (cells.size() != 6) throw std::runtime_error("not six cells: " + line);
        Row row{cells[0] == "causal", cells[1] == "yes", cells[2], 0, 0, cells[5] == "yes"};
        if (std::sscanf(cells[3].c_str(), "%u-%u", &row.low, &row.high) != 2) {
            throw std::runtime_error("not a range of head dims: " + cells[3]);
        }
        rows.push_back(row);
    }
    return rows;
}

bool names(const std::string &types, uint32_t dtype) {
    return (", " + types + ",").find(std::string(", ") + name_of(dtype) + ",") != std::string::npos;
}

bool is_offered(Rig &rig, const quire_be_attention_query &shape) {
    quire_be_answer answer{};
    answer.struct_size = sizeof answer;
    Error error;
    must(api().query_attention(rig.device(), &shape, &answer, &error), error);
    EXPECT_EQ(answer.support == QUIRE_BE_NO, answer.reason[0] != 0);
    return answer.support != QUIRE_BE_NO;
}

bool says(const Row &row, const quire_be_attention_query &shape) {
    bool types = names(row.types, shape.q_dtype) && names(row.types, shape.k_dtype) &&
                 names(row.types, shape.v_dtype);
    bool k_dim = shape.k_head_dim >= row.low && shape.k_head_dim <= row.high;
    bool v_dim = shape.v_head_dim >= row.low && shape.v_head_dim <= row.high;
    return row.is_offered && types && k_dim && v_dim;
}

void expect_row_is_true(Rig &rig, const Row &row) {
    constexpr uint32_t kTypes[] = {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16};
    const uint32_t dims[] = {row.low - 1, row.low, 64, row.high, row.high + 1};
    for (uint32_t i = 0; i < 27 * 25 * 3; ++i) {
        quire_be_attention_query shape{};
        shape.struct_size = sizeof shape;
        shape.q_heads = 8;
        shape.kv_heads = 2;
        shape.q_dtype = kTypes[i % 3];
        shape.k_dtype = kTypes[i / 3 % 3];
        shape.v_dtype = kTypes[i / 9 % 3];
        shape.k_head_dim = dims[i / 27 % 5];
        shape.v_head_dim = dims[i / 135 % 5];
        shape.block_tokens = i / 675 == 0 ? 1 : i / 675 * 50;
        shape.window = row.has_window ? 9 : 0;
        if (!row.is_causal) shape.flags = QUIRE_ATTENTION_NOT_CAUSAL;
        EXPECT_EQ(is_offered(rig, shape), says(row, shape))
            << (row.is_causal ? "causal" : "not causal") << ", window " << shape.window << ", "
            << name_of(shape.q_dtype) << " " << name_of(shape.k_dtype) << " "
            << name_of(shape.v_dtype) << ", dims " << shape.k_head_dim << " " << shape.v_head_dim
            << ", block_tokens " << shape.block_tokens;
    }
}

}  // namespace

TEST_F(ReadmeTest, matrix_is_what_the_backend_answers) {
    if (options().readme.empty()) GTEST_SKIP() << "no --readme was given";
    Rig rig;
    std::vector<Row> rows = read_matrix(options().readme);
    std::map<std::pair<bool, bool>, int> seen;
    for (const Row &row : rows) {
        ++seen[{row.is_causal, row.has_window}];
        expect_row_is_true(rig, row);
    }
    EXPECT_EQ(rows.size(), 4u);
    EXPECT_EQ(seen.size(), 4u) << "each of the four rows once";
}

}  // namespace quire::conformance
