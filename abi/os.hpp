// SPDX-License-Identifier: Apache-2.0
//
// os: every operating-system call of libquire. Linux now; nothing else in the library knows.
//
// Threads: any.
#pragma once

#include <cstdint>

#include "quire/base.h"

namespace quire::os {

// Random bytes for hash keys and the first handle; false when the system has none.
bool random_bytes(void *out, uint64_t size_bytes);

// An environment variable, or nullptr; always nullptr in a privileged process.
const char *environment(const char *name);

// Bytes of memory that the machine has. More than that in one piece is promised by the system, and
// then ends the process that touches it.
uint64_t physical_memory();

// The directory of the file that libquire was loaded from, without a slash at the end.
bool own_directory(char *out, uint64_t capacity);

// Calls visit(user, path) for each regular file of the directory whose name begins and ends so, in
// the order of their names. False when the directory is not there.
bool list_files(const char *directory, const char *prefix, const char *suffix,
                void (*visit)(void *user, const char *path), void *user);

// Loads a plugin for good and finds one symbol of it. On failure returns nullptr and writes why.
// Only regular files of this user or root are loaded, by absolute path, that others can neither
// write nor replace: no directory on the way may be written by the world (but a sticky parent) or
// by a group other than the owner's own. Links in directories are resolved first.
void *load_symbol(const char *path, const char *symbol, char *why, uint64_t why_capacity);

// Memory of this size will be used all over: large pages serve it better.
void advise_large(void *memory, uint64_t size_bytes);

// A number of this process, and another one in each of its forked children. O(1), and no system
// call
// but at the first one. 0 where the system cannot tell (it has no MADV_WIPEONFORK).
uint64_t process_number();

// From remember_process() on, forked() is true in children of this process.
bool remember_process();
bool forked();

// Of a clock that only goes forward.
uint64_t monotonic_ns();
// What is left of timeout_ns, counted from `begin`; UINT64_MAX is for ever.
uint64_t time_left(uint64_t begin, uint64_t timeout_ns);

// Names the calling thread, for detecting calls from within callbacks.
uintptr_t thread_number();

}  // namespace quire::os
