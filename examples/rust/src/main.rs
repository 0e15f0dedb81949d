// SPDX-License-Identifier: Apache-2.0

//! candle_llama: a Llama model on candle whose KV cache and attention are Quire's.
//!
//! Weights, MLPs and sampling are candle's and this program's. Prompts with a common beginning
//! share blocks, a fork shares its parent's, and chats that do not fit in the pool are preempted
//! and computed again. `--check` compares every text with the one that candle's own cache gives.

mod checkpoint;
mod engine;
mod model;
mod own;

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use candle_core::Result;

use checkpoint::{Checkpoint, Pieces, BOS, EOS};
use engine::{wrapped, Engine};
use model::Model;

const USAGE: &str = "usage: candle-llama [OPTIONS]

  --weights FILE      a llama2.c checkpoint; without it a seeded model
  --tokenizer FILE    its tokenizer; without it tokens are printed
  --device NAME       Quire's backend (cpu)
  --steps N           most tokens in a text (256)
  --samples N         chats with the same prompt (1)
  --share-at N        add a chat whose prompt is the first N tokens of the first chat's text
  --fork-at N         add a chat, forked from the first one when that has N tokens
  --pool-blocks N     blocks in the pool (256)
  --block-tokens N    tokens per block (16)
  --check             compare with candle's own cache, token for token
  --json              print token ids and counts as JSON instead of the text

example: candle-llama --weights stories260K.bin --tokenizer tok512.bin --fork-at 40 --check
";

struct Options {
    weights: Option<PathBuf>,
    tokenizer: Option<PathBuf>,
    device: String,
    steps: usize,
    samples: usize,
    share_at: usize,
    fork_at: usize,
    pool_blocks: u32,
    block_tokens: u32,
    checks: bool,
    json: bool,
}

fn parse() -> std::result::Result<Option<Options>, String> {
    let mut options = Options {
        weights: None,
        tokenizer: None,
        device: "cpu".to_owned(),
        steps: 256,
        samples: 1,
        share_at: 0,
        fork_at: 0,
        pool_blocks: 256,
        block_tokens: 16,
        checks: false,
        json: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--help" | "-h" => return Ok(None),
            "--check" => options.checks = true,
            "--json" => options.json = true,
            _ => {
                let missing = format!("{word}: unknown option, or its value is missing");
                let value = words.next().ok_or(missing)?;
                let number = || {
                    let most = 1 << 24;
                    let number = value.parse::<u32>().ok().filter(|number| *number <= most);
                    number.ok_or(format!("{word} {value}: must be a number up to {most}"))
                };
                match word.as_str() {
                    "--weights" => options.weights = Some(value.into()),
                    "--tokenizer" => options.tokenizer = Some(value.into()),
                    "--device" => options.device = value,
                    "--steps" => options.steps = number()? as usize,
                    "--samples" => options.samples = number()? as usize,
                    "--share-at" => options.share_at = number()? as usize,
                    "--fork-at" => options.fork_at = number()? as usize,
                    "--pool-blocks" => options.pool_blocks = number()?,
                    "--block-tokens" => options.block_tokens = number()?.max(1),
                    _ => return Err(format!("{word}: unknown option")),
                }
            }
        }
    }
    Ok(Some(options))
}

/// Runs all chats; some start while the first one runs.
fn run(engine: &mut Engine<'_>, options: &Options, limit: usize) -> Result<()> {
    for _ in 0..options.samples {
        wrapped(engine.add(&[BOS], limit))?;
    }
    let (mut shares, mut forks) = (options.share_at > 0, options.fork_at > 0);
    while engine.step()? {
        let length = engine.chats[0].tokens.len();
        if std::mem::take(&mut shares) {
            if length < options.share_at {
                shares = true;
            } else {
                let prompt = engine.chats[0].tokens[..options.share_at].to_vec();
                wrapped(engine.add(&prompt, limit))?;
            }
        }
        if forks && length >= options.fork_at {
            forks = false;
            wrapped(engine.fork(0))?;
        }
    }
    Ok(())
}

/// Compares each chat with the text that candle's own cache gives for its prompt.
fn check(engine: &Engine<'_>, model: &Model, limit: usize, ends: &[u32]) -> Result<usize> {
    let mut own: HashMap<&[u32], Vec<u32>> = HashMap::new();
    let mut compared = 0;
    for (i, chat) in engine.chats.iter().enumerate() {
        if !own.contains_key(chat.prompt()) {
            own.insert(chat.prompt(), own::text(model, chat.prompt(), limit, ends)?);
        }
        let own = &own[chat.prompt()];
        if let Some(place) = (0..own.len().max(chat.tokens.len()))
            .find(|&place| own.get(place) != chat.tokens.get(place))
        {
            candle_core::bail!("chat {i} differs from candle's own cache at token {place}");
        }
        compared += own.len();
    }
    Ok(compared)
}

fn print(engine: &Engine<'_>, model: &Model, options: &Options, compared: usize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let (counts, stats) = (&engine.counts, wrapped(engine.cache.stats())?);
    let texts: Vec<&[u32]> = engine.chats.iter().map(|chat| &chat.tokens[1..]).collect();
    if options.json {
        writeln!(
            out,
            "{{\"texts\": {texts:?}, \"hit_tokens\": {}, \"preemptions\": {}, \"forks\": {}, \
             \"copies_on_write\": {}, \"steps\": {}, \"largest_step_tokens\": {}, \
             \"largest_kv_tokens\": {}, \"tokens_compared\": {compared}}}",
            counts.hit_tokens,
            stats.num_preemptions,
            stats.forks,
            stats.copies_on_write,
            counts.steps,
            counts.largest_step_tokens,
            counts.largest_kv_tokens
        )?;
    } else if let Some(path) = &options.tokenizer {
        let pieces = Pieces::load(path, model.shape.vocab)?;
        for text in texts {
            out.write_all(&pieces.text(text))?;
            out.write_all(b"\n")?;
        }
    } else {
        for text in texts {
            let words: Vec<String> = text.iter().map(u32::to_string).collect();
            writeln!(out, "{}", words.join(" "))?;
        }
    }
    if options.checks && !options.json {
        eprintln!("{compared} tokens equal those of candle's own cache");
    }
    Ok(())
}

fn serve(options: &Options) -> Result<()> {
    let checkpoint = match &options.weights {
        Some(path) => Checkpoint::load(path)?,
        None => Checkpoint::seeded(1)?,
    };
    let model = Model::new(&checkpoint)?;
    let limit = options.steps.min(model.shape.seq_len - 1) + 1;
    // For a seeded model no token means the end.
    let ends: &[u32] = if options.weights.is_some() { &[BOS, EOS] } else { &[] };
    let (blocks, tokens) = (options.pool_blocks, options.block_tokens);
    let mut engine = wrapped(Engine::new(&model, ends, &options.device, blocks, tokens))?;
    run(&mut engine, options, limit)?;
    wrapped(engine.cache.check())?;
    let compared = if options.checks { check(&engine, &model, limit, ends)? } else { 0 };
    print(&engine, &model, options, compared)
}

fn main() -> ExitCode {
    match parse() {
        Ok(Some(options)) => match serve(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                // Leave out the backtrace that candle adds if one is asked for.
                let said = error.to_string();
                eprintln!("candle-llama: {}", said.split("\n   0:").next().unwrap_or(&said));
                ExitCode::FAILURE
            }
        },
        Ok(None) => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("candle-llama: {message}; see --help");
            ExitCode::from(2)
        }
    }
}
