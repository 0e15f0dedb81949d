/* SPDX-License-Identifier: Apache-2.0
 *
 * transfer: copies and fills. Both memories are the host's: a kind only decides what may overlap.
 *
 * Threads: any; the works run on the device's thread.
 */
#include <stdlib.h>
#include <string.h>

#include "device.h"

struct fill {
    quire_be_range range;
    int byte;
};

static int run_copies(const void *arguments, size_t size_bytes) {
    const quire_be_copy *copies = arguments;
    size_t i;
    for (i = 0; i < size_bytes / sizeof *copies; ++i) {
        if (copies[i].size_bytes == 0) continue;
        memcpy((void *)(uintptr_t)copies[i].dst, (const void *)(uintptr_t)copies[i].src,
               copies[i].size_bytes);
    }
    return 1;
}

static int run_fills(const void *arguments, size_t size_bytes) {
    const struct fill *fills = arguments;
    size_t i;
    for (i = 0; i < size_bytes / sizeof *fills; ++i) {
        if (fills[i].range.size_bytes == 0) continue;
        memset((void *)(uintptr_t)fills[i].range.address, fills[i].byte, fills[i].range.size_bytes);
    }
    return 1;
}

/* Says in words what is wrong with a range; NULL if nothing is. */
static const char *range_fault(uint64_t address, uint64_t size_bytes) {
    if (size_bytes == 0) return NULL;
    if (address == 0) return "is at address 0";
    return address > UINT64_MAX - size_bytes ? "exceeds 64 bits" : NULL;
}

static quire_status check_copy(const quire_be_copy *copy, uint32_t index, quire_error *error) {
    const char *fault;
    if (copy->kind > QUIRE_BE_COPY_H2H) {
        return fail(error, QUIRE_E_ARG, "copy %u has the unknown kind %u", (unsigned)index,
                    (unsigned)copy->kind);
    }
    fault = range_fault(copy->dst, copy->size_bytes);
    if (fault != NULL) {
        return fail(error, QUIRE_E_ARG, "the destination of copy %u %s", (unsigned)index, fault);
    }
    fault = range_fault(copy->src, copy->size_bytes);
    if (fault != NULL) {
        return fail(error, QUIRE_E_ARG, "the source of copy %u %s", (unsigned)index, fault);
    }
    if ((copy->kind == QUIRE_BE_COPY_D2D || copy->kind == QUIRE_BE_COPY_H2H) &&
        copy->dst < copy->src + copy->size_bytes && copy->src < copy->dst + copy->size_bytes) {
        return fail(error, QUIRE_E_ARG, "the destination of copy %u overlaps its source",
                    (unsigned)index);
    }
    return QUIRE_OK;
}

quire_status copy(quire_be_queue *queue, const quire_be_copy *copies, uint32_t count,
                  quire_error *error) {
    uint32_t i;
    if (queue == NULL || (copies == NULL && count > 0)) {
        return fail(error, QUIRE_E_ARG, "queue or copies is NULL");
    }
    for (i = 0; i < count; ++i) {
        quire_status status = check_copy(&copies[i], i, error);
        if (status < 0) return status;
    }
    return queue_push(queue, run_copies, copies, count * sizeof *copies, error);
}

quire_status fill(quire_be_queue *queue, const quire_be_range *ranges, uint32_t count,
                  uint32_t byte, quire_error *error) {
    struct fill *fills;
    quire_status status;
    uint32_t i;
    if (queue == NULL) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (byte > 255)
        return fail(error, QUIRE_E_ARG, "byte is %u; it must be 0 to 255", (unsigned)byte);
    if (count == 0) return QUIRE_OK;
    if (ranges == NULL) return fail(error, QUIRE_E_ARG, "ranges is NULL");
    for (i = 0; i < count; ++i) {
        const char *fault = range_fault(ranges[i].address, ranges[i].size_bytes);
        if (fault == NULL) continue;
        return fail(error, QUIRE_E_ARG, "fill range %u %s", (unsigned)i, fault);
    }
    fills = malloc(count * sizeof *fills);
    if (fills == NULL)
        return fail(error, QUIRE_E_HOST_MEMORY, "no memory for %u fills", (unsigned)count);
    for (i = 0; i < count; ++i) {
        fills[i].range = ranges[i];
        fills[i].byte = (int)byte;
    }
    status = queue_push(queue, run_fills, fills, count * sizeof *fills, error);
    free(fills);
    return status;
}
