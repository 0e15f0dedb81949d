/* SPDX-License-Identifier: Apache-2.0 */

#include "nothing.h"

static quire_status begin(quire_cache *cache, const quire_step_desc *desc,
                          const quire_step_item *items, uint32_t item_count, uint32_t item_stride,
                          const quire_token *tokens, uint32_t token_count,
                          quire_step_result *results, uint32_t result_stride, quire_step *out,
                          quire_error *error) {
    (void)cache, (void)desc, (void)items, (void)item_count, (void)item_stride, (void)tokens;
    (void)token_count, (void)results, (void)result_stride, (void)out, (void)error;
    return QUIRE_OK;
}

static quire_status commit(quire_cache *cache, quire_step step, quire_batch *batch,
                           quire_error *error) {
    (void)cache, (void)step, (void)batch, (void)error;
    return QUIRE_OK;
}

static quire_status finish(quire_cache *cache, quire_step step, const quire_native *signal,
                           uint32_t outcome, quire_error *error) {
    (void)cache, (void)step, (void)signal, (void)outcome, (void)error;
    return QUIRE_OK;
}

const quire_api *nothing_api(void) {
    static const quire_api table = {
        .struct_size = sizeof table,
        .step_begin = begin,
        .step_commit = commit,
        .step_finish = finish,
    };
    return &table;
}
