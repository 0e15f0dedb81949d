# SPDX-License-Identifier: Apache-2.0
"""vllm_clock: how long vLLM's scheduler takes with its own manager and with quire.vllm's.

    vllm_clock.py [--manager quire | quire-blocks] [--requests N] [--tokens N] [--prompts KIND]
                  [--steps N] [--runs N] [--json]

It admits N requests in one step, and then decodes them together; vLLM's tests, which vllm_own.py
can find, make the schedulers. Prompts of the KIND `other` are random tokens, those of `shared` have
the first half in common, and `plain` ones are one token each, repeated. Both managers run in one
process, in turns; with quire-blocks ours is vLLM's manager on Quire's blocks. The times are CPU
time; the last lines are medians of each run's ratio. Needs what vllm_own.py needs.
"""

import argparse
import gc
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import vllm_own  # noqa: E402

BLOCK_TOKENS = 16


def prompts(options):
    from tests.v1.core import utils
    made = utils.create_requests(options.requests, num_tokens=options.tokens, max_tokens=1 << 20,
                                 block_size=BLOCK_TOKENS)
    if options.prompts == "plain":
        return made
    draw = random.Random(1)
    head = draw.choices(range(50000), k=options.tokens // 2) if options.prompts == "shared" else []
    hasher = utils.get_request_block_hasher(BLOCK_TOKENS, utils.sha256)
    return [utils.Request(
        request_id=request.request_id,
        prompt_token_ids=head + draw.choices(range(50000), k=options.tokens - len(head)),
        sampling_params=request.sampling_params, pooling_params=None, block_hasher=hasher)
        for request in made]


class Clocked:
    """A scheduler with one of the managers, its steps timed."""

    def __init__(self, manager, options):
        import vllm.v1.core.sched.scheduler as module
        from tests.v1.core import utils
        module.KVCacheManager = manager
        blocks = options.requests * -(-(options.tokens + options.steps + 32) // BLOCK_TOKENS)
        self.scheduler = utils.create_scheduler(
            max_num_seqs=options.requests, enable_prefix_caching=True, block_size=BLOCK_TOKENS,
            max_num_batched_tokens=options.requests * options.tokens, num_blocks=2 * blocks)
        self.requests = prompts(options)
        self.steps = options.steps

    def output(self, scheduled):
        from vllm.v1.outputs import ModelRunnerOutput
        names = list(scheduled.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[[7]] * len(names), logprobs=None, prompt_logprobs_dict={},
            pooler_output=[])

    def play(self):
        """(ms to admit all, median ms of a decoding step, mean of them)."""
        for request in self.requests:
            self.scheduler.add_request(request)
        gc.collect()
        times = []
        for _ in range(1 + self.steps):
            begin = time.process_time()
            scheduled = self.scheduler.schedule()
            times.append(1e3 * (time.process_time() - begin))
            if len(scheduled.num_scheduled_tokens) != len(self.requests):
                sys.exit("not all requests were scheduled")
            self.scheduler.update_from_output(scheduled, self.output(scheduled))
        return times[0], statistics.median(times[1:]), statistics.mean(times[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("requests", 256), ("tokens", 512), ("steps", 64), ("runs", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--prompts", choices=("other", "shared", "plain"), default="other")
    parser.add_argument("--manager", choices=("quire", "quire-blocks"), default="quire")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    missing = vllm_own.why_not()
    if missing:
        sys.exit(missing)
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work) / "here"
        vllm_own.write_model(folder)
        os.chdir(folder)
        sys.path[:0] = [str(folder)]
        os.environ.update({"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"})
        rows = measure(options)
    report(rows, options.json)


def measure(options):
    import vllm.platforms
    assert vllm.platforms.current_platform.is_cpu()
    from vllm.v1.core.kv_cache_manager import KVCacheManager as theirs
    if options.manager == "quire":
        from quire.vllm import KVCacheManager as ours
    else:
        from quire.vllm_leased import KVCacheManager as ours
    for manager in (theirs, ours):
        Clocked(manager, options).play()
    rows = []
    for run in range(options.runs):
        order = (theirs, ours) if run % 2 == 0 else (ours, theirs)
        rows.append({("vllm" if m is theirs else "quire"): Clocked(m, options).play()
                     for m in order})
    return rows


def report(rows, as_json):
    if as_json:
        print(json.dumps(rows))
        return
    for i, name in enumerate(("admit", "decode, median", "decode, mean")):
        for row in rows:
            print(f"{name:16} vLLM {row['vllm'][i]:7.3f} ms  quire {row['quire'][i]:7.3f} ms  "
                  f"ratio {row['quire'][i] / row['vllm'][i]:.2f}")
    for i, name in enumerate(("admit", "decode, median", "decode, mean")):
        ratios = [row["quire"][i] / row["vllm"][i] for row in rows]
        print(f"{name:16} median ratio {statistics.median(ratios):.2f}, "
              f"{min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
