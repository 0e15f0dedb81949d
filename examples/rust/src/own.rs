// SPDX-License-Identifier: Apache-2.0

//! own: one text with candle's own KV cache, to compare with.

use candle_core::{Device, Result, Tensor};
use candle_nn::{kv_cache::KvCache, ops};

use crate::checkpoint::Shape;
use crate::model::{Attention, Model};

struct OwnCache {
    shape: Shape,
    layers: Vec<KvCache>,
}

impl OwnCache {
    fn new(shape: Shape) -> Self {
        let layers = (0..shape.layers).map(|_| KvCache::new(0, shape.seq_len)).collect();
        Self { shape, layers }
    }
}

/// Repeats each KV head for the query heads of its group: `[tokens, heads, head_dim]`.
fn repeated(x: &Tensor, times: usize) -> Result<Tensor> {
    let (tokens, heads, dim) = x.dims3()?;
    x.unsqueeze(2)?.expand((tokens, heads, times, dim))?.reshape((tokens, heads * times, dim))
}

/// 0 where a query sees a key, -inf where the key comes after it.
fn mask(queries: usize, keys: usize) -> Result<Tensor> {
    let before = keys - queries;
    let seen = |q: usize, k: usize| if k <= before + q { 0.0 } else { f32::NEG_INFINITY };
    let rows: Vec<f32> = (0..queries).flat_map(|q| (0..keys).map(move |k| seen(q, k))).collect();
    Tensor::from_vec(rows, (1, queries, keys), &Device::Cpu)
}

impl Attention for OwnCache {
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let s = &self.shape;
        let (k, v) = self.layers[layer].append(&k.contiguous()?, &v.contiguous()?)?;
        let (queries, keys) = (q.dim(0)?, k.dim(0)?);
        let by_head = |x: &Tensor| x.transpose(0, 1)?.contiguous();
        let q = by_head(q)?;
        let k = by_head(&repeated(&k, s.heads / s.kv_heads)?)?;
        let v = by_head(&repeated(&v, s.heads / s.kv_heads)?)?;
        let scores = (q.matmul(&k.t()?)? / (s.head_dim() as f64).sqrt())?;
        let weights = ops::softmax_last_dim(&scores.broadcast_add(&mask(queries, keys)?)?)?;
        weights.matmul(&v)?.transpose(0, 1)?.reshape((queries, s.dim))
    }
}

/// Continues a prompt, up to `limit` tokens in all or one of `ends`.
pub fn text(model: &Model, prompt: &[u32], limit: usize, ends: &[u32]) -> Result<Vec<u32>> {
    let mut cache = OwnCache::new(model.shape);
    let mut tokens = prompt.to_vec();
    let mut told = 0;
    while tokens.len() < limit {
        let new = &tokens[told..];
        let positions: Vec<u32> = (told as u32..tokens.len() as u32).collect();
        let next = model.next(new, &positions, &[new.len() as u32 - 1], &mut cache)?[0];
        told = tokens.len();
        tokens.push(next);
        if ends.contains(&next) {
            break;
        }
    }
    Ok(tokens)
}
