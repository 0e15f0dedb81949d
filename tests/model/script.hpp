// SPDX-License-Identifier: Apache-2.0
//
// script: operations on a cache as data: one line of text each, generated from a seed or read from
// a file.
//
// A line is a name and `field=number` pairs in any order, as in tests/sim (op.hpp), which reads
// them; a field that is left out is 0. script.cpp lists the fields of each operation. Sequences are
// named by slots, documents by numbers. After `config` there is a `group` for each of its groups.
//
// config's flags: 1 no prefixes, 2 victims by priority, 4 no followers, so that a migration may
// change the numbers of blocks; with followers a migration keeps the numbers, on both sides.
// migrate's percent is relative to the numbers in config; host 0 keeps the host tier's.
//
// Documents share prefixes: d and d' have the same tokens up to a length that follows from d and
// d', so that random scripts hit, miss and duplicate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire::model {

struct Op {
    std::string name;
    std::vector<int> args;  // in the order of its fields; in config, each group's after its own
    std::string text() const;
};

using Script = std::vector<Op>;

Script make_script(uint64_t seed, int length);
Script parse_script(const std::string &text);
std::string script_text(const Script &script);

// Token `position` of a content.
uint32_t token_of(int content, int position);

// The parent of draft i in the tree that TREE names, -1 = none; TREE 0 is a chain.
int parent_of(int tree, int draft);

}  // namespace quire::model
