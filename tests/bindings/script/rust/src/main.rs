// SPDX-License-Identifier: Apache-2.0

//! script: runs the operations of a file on a cache and prints each result; ../README.md.

mod lease;

use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::time::Duration;

use lease::Leased;
use quire::{
    Cache, CacheOptions, ErrorKind, Group, Instance, Item, ItemResult, MigrateOptions, OpenStep,
    PoolSize, Preempt, Result, Sequence, SequenceOptions, Step, StepOptions, TokenSpan, Wait,
    UNKNOWN_TOKEN,
};

fn name_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Argument => "argument",
        ErrorKind::Stale => "stale",
        ErrorKind::Busy => "busy",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::Limit => "limit",
        _ => "other",
    }
}

fn numbers(first: u32, count: u32, unknown: u32) -> Vec<u32> {
    let known = |i| if i + unknown < count { first + i } else { UNKNOWN_TOKEN };
    (0..count).map(known).collect()
}

fn how(number: u32) -> Preempt {
    [Preempt::Auto, Preempt::Swap, Preempt::Recompute][number as usize]
}

fn reason(wait: Option<Wait>) -> u32 {
    match wait {
        None => 0,
        Some(Wait::Pool) => 1,
        Some(Wait::Watermark) => 2,
        Some(Wait::Quota) => 3,
        Some(Wait::Preempted) => 4,
        _ => 99,
    }
}

fn spaced<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    values.into_iter().fold("ok".to_owned(), |line, value| line + " " + &value.to_string())
}

struct Script {
    cache: Cache,
    places: HashMap<u32, Sequence>,
    leases: HashMap<u32, Leased>,
    step: Option<OpenStep>,
    committed: VecDeque<Step>,
}

impl Script {
    fn new(a: &[u32; 6]) -> Result<Self> {
        let groups = [Group { layers: 1, kv_heads: 1, head_dim: 8, ..Group::default() }];
        let cache = Instance::new()?.cache(CacheOptions {
            groups: &groups,
            block_tokens: 4,
            size: PoolSize::Blocks(a[0]),
            host_blocks: a[1],
            ..CacheOptions::default()
        })?;
        let (places, leases) = (HashMap::new(), HashMap::new());
        Ok(Self { cache, places, leases, step: None, committed: VecDeque::new() })
    }

    fn run(&mut self, op: &str, a: &[u32; 6]) -> String {
        let done = match op {
            "add" | "drop" | "preempt" | "abort" | "commit" if self.step.is_none() => None,
            "unlease" | "take" | "publish" | "match" | "give" | "pin" | "forget" | "held" => {
                self.of_lease(op, a).transpose()
            }
            "lease" | "evict" | "create" | "begin" | "abort" | "commit" | "finish" | "fail"
            | "migrate" | "reset" | "stats" => self.of_cache(op, a).transpose(),
            _ => self.places.remove(&a[0]).map(|sequence| {
                let said = self.of_sequence(op, &sequence, a);
                if op != "end" || said.is_err() {
                    self.places.insert(a[0], sequence);
                }
                said
            }),
        };
        match done {
            None => "none".to_owned(),
            Some(Ok(said)) => said,
            Some(Err(error)) => name_of(error.kind()).to_owned(),
        }
    }

    fn of_cache(&mut self, op: &str, a: &[u32; 6]) -> Result<Option<String>> {
        match op {
            "create" if self.places.contains_key(&a[0]) => return Ok(Some("taken".to_owned())),
            "create" => {
                let priority = a[1] as i32;
                let options = SequenceOptions { priority, ..SequenceOptions::default() };
                self.places.insert(a[0], self.cache.sequence(options)?);
            }
            "begin" => {
                let options = StepOptions {
                    queue_tag: a[0].into(),
                    may_preempt: a[1] != 0,
                    preempt: how(a[2]),
                    ..StepOptions::default()
                };
                self.step = Some(self.cache.begin(options, &[], &[], &mut [])?);
            }
            "abort" => self.step = None,
            "commit" => return self.commit().map(Some),
            "finish" | "fail" => {
                let Some(step) = self.committed.pop_front() else { return Ok(None) };
                if op == "finish" {
                    step.finish()?;
                } else {
                    step.fail();
                }
            }
            "migrate" => {
                let size = PoolSize::Blocks(a[0]);
                let timeout = Some(Duration::ZERO);
                let options = MigrateOptions { size, timeout, ..MigrateOptions::default() };
                let m = self.cache.migrate(options)?;
                let moved = u64::from(m.is_moved);
                let short = u64::from(m.blocks_short);
                return Ok(Some(spaced([moved, m.blocks_moved, m.blocks_dropped, short])));
            }
            "reset" => self.cache.reset()?,
            "lease" => return self.lease(a).map(Some),
            "evict" => {
                let mut ids = vec![0; a[0] as usize];
                let count = self.cache.evict(0, &mut ids)?;
                return Ok(Some(spaced(&ids[..count])));
            }
            _ => {
                let s = self.cache.stats()?;
                return Ok(Some(spaced([
                    s.prefix_cache_queries,
                    s.prefix_cache_hits,
                    s.num_preemptions,
                    s.evictions,
                    s.copies_on_write,
                    s.blocks_swapped_out,
                    s.blocks_swapped_in,
                    s.forks,
                    s.steps,
                    s.sequences,
                    s.blocks_free,
                    s.blocks_cached,
                    s.blocks_held,
                    s.leases,
                    s.blocks_leased,
                ])));
            }
        }
        Ok(Some("ok".to_owned()))
    }

    fn commit(&mut self) -> Result<String> {
        let step = match self.step.take().unwrap().commit(None) {
            Ok(step) => step,
            Err(refused) => {
                self.step = refused.step;
                return Err(refused.error);
            }
        };
        let (copies, gone) = (step.copies()?.len() as u32, step.preempted()?);
        let had = gone.iter().map(|one| one.computed_tokens).sum();
        self.committed.push_back(step);
        Ok(spaced([copies, gone.len() as u32, had]))
    }

    fn of_sequence(&mut self, op: &str, sequence: &Sequence, a: &[u32; 6]) -> Result<String> {
        match op {
            "end" => sequence.end()?,
            "fork" if a[1] == a[0] || self.places.contains_key(&a[1]) => {
                return Ok("taken".to_owned())
            }
            "fork" => {
                let child = sequence.fork(a[2])?;
                self.places.insert(a[1], child);
            }
            "truncate" => sequence.truncate(a[1])?,
            "accept" => sequence.accept(a[1])?,
            "pair" => return self.pair(sequence, a),
            "set" => {
                let span = TokenSpan::new(sequence, a[1], 0, a[3]);
                self.cache.set_tokens(&[span], &numbers(a[2], a[3], 0))?;
            }
            "probe" => return Ok(spaced([sequence.probe(&numbers(a[1], a[2], 0))?])),
            "info" => {
                let i = sequence.info()?;
                return Ok(spaced([
                    i.known_tokens,
                    i.computed_tokens,
                    i.draft_tokens,
                    i.blocks_held,
                    i.preemptions,
                ]));
            }
            "blocks" => return Ok(spaced(sequence.blocks(0)?)),
            "add" => return self.add(sequence, a),
            "drop" => {
                let gone = self.step.as_mut().unwrap().drop_item(sequence)?;
                return Ok(spaced([gone.len()]));
            }
            _ => {
                let freed = self.step.as_mut().unwrap().preempt(sequence, how(a[1]))?;
                return Ok(freed.map_or("short".to_owned(), |blocks| spaced([blocks])));
            }
        }
        Ok("ok".to_owned())
    }

    fn pair(&mut self, sequence: &Sequence, a: &[u32; 6]) -> Result<String> {
        // The caller took `sequence` out of its place in order to pass it.
        let other = if a[1] == a[0] { Some(sequence) } else { self.places.get(&a[1]) };
        let Some(other) = other else { return Ok("none".to_owned()) };
        let items = [Item::new(sequence).tokens(0, a[3]), Item::new(other).tokens(a[3], a[3])];
        let tokens = [numbers(a[2], a[3], 0), numbers(a[2] + 7, a[3], 0)].concat();
        let mut results = [ItemResult::default(); 2];
        let step = self.cache.begin(StepOptions::default(), &items, &tokens, &mut results)?;
        step.commit(None)?.finish()?;
        Ok(spaced(results.iter().flat_map(|r| {
            let runs = u32::from(r.runs());
            [runs, r.hit_tokens(), r.first_position(), r.compute_count(), r.row() as u32]
        })))
    }

    fn add(&mut self, sequence: &Sequence, a: &[u32; 6]) -> Result<String> {
        let item = Item::new(sequence).tokens(0, a[2]).max_compute(a[3]).drafts(a[4]);
        let mut results = [ItemResult::default()];
        let tokens = numbers(a[1], a[2], a[5]);
        self.step.as_mut().unwrap().add(&[item], &tokens, &mut results)?;
        let r = results[0];
        Ok(spaced([
            u32::from(r.runs()),
            reason(r.wait()),
            r.hit_tokens(),
            r.first_position(),
            r.compute_count(),
            r.blocks_short(),
            r.row() as u32,
        ]))
    }
}

fn main() {
    let path = std::env::args().nth(1).expect("usage: script FILE");
    let content = std::fs::read_to_string(path).unwrap();
    let (mut out, mut script) = (String::new(), None);
    for (i, line) in content.lines().enumerate() {
        let mut words = line.split_whitespace();
        let op = words.next().unwrap();
        let mut a = [0; 6];
        words.zip(&mut a).for_each(|(word, number)| {
            *number = word.split_once('=').unwrap().1.parse().unwrap();
        });
        let said = match &mut script {
            None => {
                script = Some(Script::new(&a).unwrap());
                "ok".to_owned()
            }
            Some(script) => script.run(op, &a),
        };
        writeln!(out, "{} {said}", i + 1).unwrap();
    }
    print!("{out}");
    script.unwrap().cache.check().unwrap();
}
