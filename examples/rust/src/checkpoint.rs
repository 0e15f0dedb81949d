// SPDX-License-Identifier: Apache-2.0

//! checkpoint: a Llama model's weights and pieces, from llama2.c's files or from a seed.
//!
//! The legacy checkpoint: seven int32 (dim, hidden_dim, layers, heads, kv_heads, vocab, seq_len; a
//! negative vocab means that the classifier is not the embedding), then f32 tensors in the order of
//! `order`. The tokenizer: an int32, then for each token an f32 score, an int32 length, its bytes.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{bail, Context, Device, Result, Tensor};

pub const BOS: u32 = 1;
pub const EOS: u32 = 2;

#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub dim: usize,
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub vocab: usize,
    pub seq_len: usize,
}

impl Shape {
    pub fn head_dim(&self) -> usize {
        self.dim / self.heads
    }
}

/// Names and sides of the tensors in a file.
fn order(s: &Shape, has_classifier: bool) -> Vec<(&'static str, Vec<usize>)> {
    let kv_dim = s.kv_heads * s.head_dim();
    let mut list = vec![
        ("embedding", vec![s.vocab, s.dim]),
        ("attention_norm", vec![s.layers, s.dim]),
        ("wq", vec![s.layers, s.dim, s.dim]),
        ("wk", vec![s.layers, kv_dim, s.dim]),
        ("wv", vec![s.layers, kv_dim, s.dim]),
        ("wo", vec![s.layers, s.dim, s.dim]),
        ("ffn_norm", vec![s.layers, s.dim]),
        ("gate", vec![s.layers, s.hidden, s.dim]),
        ("down", vec![s.layers, s.dim, s.hidden]),
        ("up", vec![s.layers, s.hidden, s.dim]),
        ("final_norm", vec![s.dim]),
        ("unused", vec![2, s.seq_len, s.head_dim() / 2]),
    ];
    if has_classifier {
        list.push(("classifier", vec![s.vocab, s.dim]));
    }
    list
}

pub struct Checkpoint {
    pub shape: Shape,
    weights: HashMap<&'static str, Tensor>,
}

impl Checkpoint {
    pub fn load(path: &Path) -> Result<Self> {
        let content =
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let word = |i: usize| -> Result<i32> {
            let bytes = content.get(4 * i..4 * i + 4).context("the file has no header")?;
            Ok(i32::from_le_bytes(bytes.try_into().unwrap()))
        };
        let size = |i: usize| -> Result<usize> { Ok(word(i)?.unsigned_abs() as usize) };
        let shape = Shape {
            dim: size(0)?,
            hidden: size(1)?,
            layers: size(2)?,
            heads: size(3)?,
            kv_heads: size(4)?,
            vocab: size(5)?,
            seq_len: size(6)?,
        };
        if shape.heads == 0 || shape.kv_heads == 0 || !shape.dim.is_multiple_of(shape.heads) {
            bail!("{} is not a llama2.c checkpoint: {shape:?}", path.display());
        }
        let mut at = 28;
        let mut weights = HashMap::new();
        for (name, sides) in order(&shape, word(5)? < 0) {
            let bytes = sides.iter().try_fold(4usize, |all, &side| all.checked_mul(side));
            let end = bytes.and_then(|bytes| bytes.checked_add(at));
            let Some(piece) = end.and_then(|end| content.get(at..end)) else {
                bail!(
                    "{} ends inside {name}: it is not a checkpoint, or it is truncated",
                    path.display()
                );
            };
            let numbers: Vec<f32> = piece
                .chunks_exact(4)
                .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
                .collect();
            weights.insert(name, Tensor::from_vec(numbers, sides, &Device::Cpu)?);
            at += piece.len();
        }
        Ok(Self { shape, weights })
    }

    /// Random weights with attention so sharp that a wrong block shows in the text.
    pub fn seeded(seed: u64) -> Result<Self> {
        let shape = Shape {
            dim: 64,
            hidden: 172,
            layers: 3,
            heads: 8,
            kv_heads: 4,
            vocab: 128,
            seq_len: 512,
        };
        let mut random = SplitMix(seed);
        let mut weights = HashMap::new();
        for (name, sides) in order(&shape, true) {
            let rows = *sides.last().unwrap() as f32;
            let spread = match name {
                "wq" | "wk" => 1.7 / rows.sqrt(),
                "classifier" => 3.0 / rows.sqrt(),
                "embedding" => 1.0,
                _ => 1.0 / rows.sqrt(),
            };
            let count: usize = sides.iter().product();
            let is_norm = name.contains("norm");
            let numbers: Vec<f32> =
                (0..count).map(|_| if is_norm { 1.0 } else { spread * random.normal() }).collect();
            weights.insert(name, Tensor::from_vec(numbers, sides, &Device::Cpu)?);
        }
        Ok(Self { shape, weights })
    }

    pub fn weight(&self, name: &str) -> Tensor {
        let named = self.weights.get(name);
        named.unwrap_or(&self.weights["embedding"]).clone() // the classifier may be the embedding
    }

    pub fn of_layer(&self, name: &str, layer: usize) -> Result<Tensor> {
        self.weight(name).get(layer)
    }
}

/// Steele, Lea and Flood's generator (OOPSLA 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A normal number, nearly: the sum of twelve uniform numbers, less six.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| (self.next() >> 40) as f32 / (1u64 << 24) as f32).sum::<f32>() - 6.0
    }
}

/// The bytes of each token.
pub struct Pieces(Vec<Vec<u8>>);

impl Pieces {
    pub fn load(path: &Path, vocab: usize) -> Result<Self> {
        let content =
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut at = 4;
        let mut pieces = Vec::with_capacity(vocab);
        for _ in 0..vocab {
            let piece = content.get(at + 4..at + 8).and_then(|length| {
                let length = i32::from_le_bytes(length.try_into().unwrap());
                content.get(at + 8..at + 8 + usize::try_from(length).ok()?)
            });
            let piece = piece.with_context(|| format!("{} is truncated", path.display()))?;
            pieces.push(piece.to_vec());
            at += 8 + piece.len();
        }
        Ok(Self(pieces))
    }

    /// Returns the text of tokens that follow a BOS.
    pub fn text(&self, tokens: &[u32]) -> Vec<u8> {
        let mut out: Vec<u8> = tokens.iter().flat_map(|&token| self.bytes(token)).collect();
        if out.first() == Some(&b' ') {
            out.remove(0);
        }
        out
    }

    fn bytes(&self, token: u32) -> Vec<u8> {
        let piece = &self.0[token as usize];
        let text = std::str::from_utf8(piece).unwrap_or("");
        let byte = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
        match byte.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => vec![byte],
            None => piece.clone(),
        }
    }
}
