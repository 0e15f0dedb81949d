/* SPDX-License-Identifier: Apache-2.0
 *
 * owning_malloc: a malloc for LD_PRELOAD that recognises its own memory, and ends the process if it
 * is given any other pointer; it poisons memory that it hands out or takes back.
 *
 * Memory is cut from one large mapping and never used again, so that a second free is detected too.
 *
 * Threads: any; the position of the next cut is atomic.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARENA_BYTES ((size_t)8 << 30)
#define OWN 0x9e3779b97f4a7c15u
#define GONE 0x61c8864680b583ebu

/* Right before the bytes that a caller gets. */
struct head {
    size_t size;
    uint64_t mark;
};

static char *arena;
static size_t used;

static void die(const char *words) {
    ssize_t written = write(2, words, strlen(words));
    (void)written;
    _exit(99);
}

static char *begin(void) {
    char *made, *none = NULL;
    char *now = __atomic_load_n(&arena, __ATOMIC_ACQUIRE);
    if (now != NULL) return now;
    made = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) die("owning_malloc: no memory\n");
    if (__atomic_compare_exchange_n(&arena, &none, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        return made;
    }
    munmap(made, ARENA_BYTES);
    return none;
}

static void *cut(size_t alignment, size_t size) {
    char *base = begin();
    size_t step = sizeof(struct head) + alignment + size, at;
    struct head *head;
    if (size > ARENA_BYTES / 2) return NULL;
    at = __atomic_fetch_add(&used, (step + 15) / 16 * 16, __ATOMIC_RELAXED);
    if (at + step + 16 > ARENA_BYTES) return NULL;
    at = (at + sizeof(struct head) + alignment - 1) / alignment * alignment;
    head = (struct head *)(base + at) - 1;
    head->size = size;
    head->mark = OWN;
    return base + at;
}

static struct head *own(void *pointer) {
    char *at = pointer;
    struct head *head = (struct head *)pointer - 1;
    if (arena == NULL || at < arena + sizeof *head || at >= arena + ARENA_BYTES) {
        die("owning_malloc: freed a foreign pointer\n");
    }
    if (head->mark != OWN) die("owning_malloc: freed twice, or not at the start of a block\n");
    return head;
}

void *malloc(size_t size) {
    void *made = cut(16, size);
    if (made != NULL) memset(made, 0xA5, size);
    return made;
}

void free(void *pointer) {
    struct head *head;
    if (pointer == NULL) return;
    head = own(pointer);
    head->mark = GONE;
    memset(pointer, 0xDD, head->size);
}

void *calloc(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    return cut(16, bytes); /* fresh pages are zero */
}

void *realloc(void *pointer, size_t size) {
    void *made = malloc(size);
    if (pointer == NULL || made == NULL) return made;
    memcpy(made, pointer, own(pointer)->size < size ? own(pointer)->size : size);
    free(pointer);
    return made;
}

void *aligned_alloc(size_t alignment, size_t size) {
    return cut(alignment < 16 ? 16 : alignment, size);
}

void *memalign(size_t alignment, size_t size) { return aligned_alloc(alignment, size); }
void *valloc(size_t size) { return aligned_alloc(4096, size); }
size_t malloc_usable_size(void *pointer) { return pointer != NULL ? own(pointer)->size : 0; }

int posix_memalign(void **out, size_t alignment, size_t size) {
    void *made = aligned_alloc(alignment, size);
    if (made == NULL) return ENOMEM;
    *out = made;
    return 0;
}
