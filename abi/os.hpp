// SPDX-License-Identifier: Apache-2.0
//
// os: every operating-system call of libquire. Linux for now; no other part of the library knows.
//
// Threads: any.
#pragma once

#include <cstdint>

#include "quire/base.h"

namespace quire::os {

// Random bytes for hash keys and the first handle; false if the system has none.
bool random_bytes(void *out, uint64_t size_bytes);

// An environment variable, or nullptr; always nullptr in a privileged process.
const char *environment(const char *name);

// Bytes of memory in the machine. The system grants a larger request, and then ends the process
// that touches that memory.
uint64_t physical_memory();

// The directory of the file that libquire was loaded from, without a slash at the end.
bool own_directory(char *out, uint64_t capacity);

// Calls visit(user, path) for each entry of the directory whose name begins with `prefix` and ends
// with `suffix`, in the order of their names. False if the directory cannot be opened.
bool list_files(const char *directory, const char *prefix, const char *suffix,
                void (*visit)(void *user, const char *path), void *user);

// Loads a plugin for good and finds one symbol in it. On failure returns nullptr and writes why.
// Loads only regular files of this user or root, by absolute path, that others can neither write
// nor replace: no directory in the path may be writable by the world (except a sticky parent) or by
// a group other than the owner's own. Links in directories are resolved first.
void *load_symbol(const char *path, const char *symbol, char *why, uint64_t why_capacity);

// Advises the system to use large pages for this memory, because all of it will be used.
void advise_large(void *memory, uint64_t size_bytes);

// A number that identifies this process; each of its forked children gets another one. O(1), and
// only the first call makes system calls. 0 if the system cannot tell (it has no MADV_WIPEONFORK).
uint64_t process_number();

// From remember_process() on, forked() is true in children of this process.
bool remember_process();
bool forked();

// A number of this process that no other living one has; a forked child has another.
uint64_t process_id();

// Files. Each returns 0, or errno. A descriptor that a call did not make is left as it was.
// A new file that only this user may read; it must not exist.
int create_file(const char *path, int *file);
// Writes all of it.
int write_file(int file, const void *bytes, uint64_t size_bytes);
// Brings the file and its place under the new name to the disk, and closes it. A file that cannot
// be brought there is removed.
int place_new_file(int file, const char *path, const char *new_path);
void drop_new_file(int file, const char *path);
// Opens a regular file to read it.
int open_file(const char *path, int *file, uint64_t *size_bytes);
// Reads exactly so many bytes from where the last read ended. *has_ended: the file is shorter.
int read_file(int file, void *bytes, uint64_t size_bytes, bool *has_ended);
void close_file(int file);

// Returns when the descriptor can be read, or the time is over, or earlier. -1: naps a millisecond.
void wait_readable(int descriptor, uint64_t timeout_ns);

// From a clock that only goes forward.
uint64_t monotonic_ns();
// The time left of timeout_ns, counted from `begin`; UINT64_MAX means for ever.
uint64_t time_left(uint64_t begin, uint64_t timeout_ns);

// Identifies the calling thread, to detect calls from within callbacks.
uintptr_t thread_number();

}  // namespace quire::os
