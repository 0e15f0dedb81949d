// SPDX-License-Identifier: Apache-2.0
//
// replay_concurrent: many requests at once, like a server whose queue is never empty.
//
// The scheduler is vLLM's in its simplest form. Each step
//   (1) decodes one token of every running request, in the order of their admission; when blocks
//       are short, the request admitted last is preempted for recompute and goes to the front of
//       the queue,
//   (2) and if no request was preempted, admits from the queue while fewer than `running` run and
//       the next one fits: its whole prompt, or all its earlier tokens, in this one step. No blocks
//       are held back.
// A request whose prefix is loaded from a store is tried again in the next step, and so are those
// after it in the queue. A request leaves after the step that produced its last token.
#pragma once

#include "replay.hpp"
#include "trace.hpp"

namespace quire::cli {

ReplayCounts replay_concurrent(const ReplayOptions &options, const Trace &trace);

}  // namespace quire::cli
