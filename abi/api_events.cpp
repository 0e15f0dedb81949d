// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of events.h.

#include "abi/cache_call.hpp"

extern "C" {

quire_status quire_cache_events(quire_cache *cache, uint32_t flags, quire_cache_event *events,
                                uint32_t capacity, uint32_t stride, quire_token *tokens,
                                uint32_t token_capacity, quire_events_info *info,
                                quire_error *error) {
    return deciding_call("cache_events", cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(check_output_array(events, capacity, stride));
        QUIRE_TRY(check_output(info));
        if (token_capacity != 0) QUIRE_TRY(need(tokens, "tokens is NULL"));
        if ((flags & ~uint32_t{QUIRE_EVENTS_RESTART}) != 0) {
            return fail(QUIRE_E_ARG, "flags {} has a bit that this version does not know", flags);
        }
        EventSink sink{reinterpret_cast<uint8_t *>(events), capacity, stride, tokens,
                       token_capacity};
        bool has_more = false;
        QUIRE_TRY(core.events((flags & QUIRE_EVENTS_RESTART) != 0, &sink, &has_more));
        quire_events_info full{};
        full.event_count = sink.event_count;
        full.token_count = sink.token_count;
        full.has_more = has_more ? 1 : 0;
        write(full, info);
        return Status{};
    });
}

}  // extern "C"
