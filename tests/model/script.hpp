// SPDX-License-Identifier: Apache-2.0
//
// script: operations on a cache as data: one line of text each, generated from a seed or read from
// a file.
//
//   config BLOCK_TOKENS HOST_BLOCKS WATERMARK FLAGS (KIND WINDOW SINKS BLOCKS)...
//   create SLOT NAMESPACE SALT PRIORITY CROSS  end SLOT DROP_PREFIX
//   begin QUEUE MAY_PREEMPT HOW                preempt SLOT HOW
//   add SLOT CONTENT COUNT MAX_COMPUTE DRAFTS LOOKAHEAD UNKNOWN TREE
//   drop SLOT                                  abort                  commit
//   finish WHICH FAILED                        fork SLOT CHILD TOKENS
//   truncate SLOT TOKENS                       accept SLOT COUNT
//   path SLOT CHOICE
//   set SLOT COUNT CONTENT                     probe SLOT CONTENT COUNT
//   reset                                      migrate PERCENT HOST_BLOCKS
//
// FLAGS: 1 no prefixes, 2 victims by priority, 4 no followers, so that a migration may change the
// numbers of blocks; with followers a migration keeps the numbers, on both sides. PERCENT is
// relative to the numbers in config; HOST_BLOCKS 0 keeps the host tier's.
//
// Contents share prefixes: content c and content c' have the same tokens up to a length that
// follows from c and c', so that random scripts hit, miss and duplicate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire::model {

struct Op {
    std::string name;
    std::vector<int> args;
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
