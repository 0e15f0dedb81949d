/* SPDX-License-Identifier: Apache-2.0
 *
 * attention: the shapes that have a kernel, plans for them, and the one kernel.
 */
#ifndef QUIRE_TESTS_TOY_ATTENTION_H
#define QUIRE_TESTS_TOY_ATTENTION_H

#include "device.h"

quire_status query_attention(quire_be_device *device, const quire_be_attention_query *query,
                             quire_be_answer *answer, quire_error *error);
quire_status plan_create(quire_be_device *device, const quire_be_plan_desc *desc,
                         quire_be_plan **out, quire_error *error);
void plan_destroy(quire_be_plan *plan);
quire_status attention(quire_be_queue *queue, quire_be_plan *plan, const quire_be_attention *args,
                       quire_error *error);

#endif /* QUIRE_TESTS_TOY_ATTENTION_H */
