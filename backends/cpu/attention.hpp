// SPDX-License-Identifier: Apache-2.0
//
// attention: what is refused before a kernel runs, and the sharing out of its work.
//
// Two times of checking. A call checks what it can see at once: pointers, strides, the pool, the
// plan. Slots, tables and lengths are device memory that earlier commands still write, so they are
// checked when their turn comes, before anything is read through them; an index outside the pool is
// then a fault of the queue.
//
// Threads: as queue. A plan is constant and copied into each command.
#pragma once

#include "kernels/element.hpp"
#include "quire/plugin/backend.h"

namespace quire::cpu {

quire_status query_attention(quire_be_device *device, const quire_be_attention_query *query,
                             quire_be_answer *answer, quire_error *error);
quire_status plan_create(quire_be_device *device, const quire_be_plan_desc *desc,
                         quire_be_plan **out, quire_error *error);
void plan_destroy(quire_be_plan *plan);
quire_status kv_write(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error);
quire_status attention(quire_be_queue *queue, quire_be_plan *plan, const quire_be_attention *args,
                       quire_error *error);

}  // namespace quire::cpu

struct quire_be_plan {
    quire_be_device *device = nullptr;
    quire_be_attention_query shape{};
    float scale = 0.0f;
    uint32_t max_rows = 0;
    uint32_t max_query_tokens = 0;
    const quire::cpu::Element *q = nullptr;
    const quire::cpu::Element *k = nullptr;
    const quire::cpu::Element *v = nullptr;
};
