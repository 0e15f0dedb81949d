// SPDX-License-Identifier: Apache-2.0

//! model: a Llama with candle's weights and arithmetic. The caller supplies attention, and with it
//! the place of K and V.

use candle_core::{Device, Result, Tensor};
use candle_nn::{ops, rotary_emb};

use crate::checkpoint::{Checkpoint, Shape};

/// Stores K and V, and attends over them.
pub trait Attention {
    /// Takes q `[tokens, heads, head_dim]`, k and v `[tokens, kv_heads, head_dim]` of the new
    /// tokens, rotated; returns `[tokens, heads * head_dim]`.
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor>;
}

struct Layer {
    attention_norm: Tensor,
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    wo: Tensor,
    ffn_norm: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
}

pub struct Model {
    pub shape: Shape,
    embedding: Tensor,
    layers: Vec<Layer>,
    final_norm: Tensor,
    classifier: Tensor,
    cosine: Tensor, // [seq_len, head_dim / 2]
    sine: Tensor,
}

const EPSILON: f32 = 1e-5;

fn angles(shape: &Shape) -> Result<(Tensor, Tensor)> {
    let half = shape.head_dim() / 2;
    let turn = |position: usize, pair: usize| {
        let frequency = 10_000f32.powf(-((2 * pair) as f32) / shape.head_dim() as f32);
        position as f32 * frequency
    };
    let angles: Vec<f32> =
        (0..shape.seq_len).flat_map(|p| (0..half).map(move |i| turn(p, i))).collect();
    let angles = Tensor::from_vec(angles, (shape.seq_len, half), &Device::Cpu)?;
    Ok((angles.cos()?, angles.sin()?))
}

impl Model {
    pub fn new(checkpoint: &Checkpoint) -> Result<Self> {
        let shape = checkpoint.shape;
        let layer = |i: usize| -> Result<Layer> {
            let turned = |name: &str| checkpoint.of_layer(name, i)?.t()?.contiguous();
            Ok(Layer {
                attention_norm: checkpoint.of_layer("attention_norm", i)?,
                wq: turned("wq")?,
                wk: turned("wk")?,
                wv: turned("wv")?,
                wo: turned("wo")?,
                ffn_norm: checkpoint.of_layer("ffn_norm", i)?,
                gate: turned("gate")?,
                up: turned("up")?,
                down: turned("down")?,
            })
        };
        let (cosine, sine) = angles(&shape)?;
        Ok(Self {
            shape,
            embedding: checkpoint.weight("embedding"),
            layers: (0..shape.layers).map(layer).collect::<Result<_>>()?,
            final_norm: checkpoint.weight("final_norm"),
            classifier: checkpoint.weight("classifier").t()?.contiguous()?,
            cosine,
            sine,
        })
    }

    /// Rotates adjacent pairs of x `[tokens, heads, head_dim]`.
    fn turn(&self, x: &Tensor, positions: &Tensor) -> Result<Tensor> {
        let cosine = self.cosine.index_select(positions, 0)?;
        let sine = self.sine.index_select(positions, 0)?;
        let x = x.transpose(0, 1)?.unsqueeze(0)?.contiguous()?;
        rotary_emb::rope_i(&x, &cosine, &sine)?.squeeze(0)?.transpose(0, 1)?.contiguous()
    }

    /// Returns the most likely token after each of the new tokens that `last` names.
    pub fn next(
        &self,
        tokens: &[u32],
        positions: &[u32],
        last: &[u32],
        attention: &mut dyn Attention,
    ) -> Result<Vec<u32>> {
        let (s, n) = (&self.shape, tokens.len());
        let positions = Tensor::new(positions, &Device::Cpu)?;
        let mut x = self.embedding.index_select(&Tensor::new(tokens, &Device::Cpu)?, 0)?;
        for (i, layer) in self.layers.iter().enumerate() {
            let y = ops::rms_norm(&x, &layer.attention_norm, EPSILON)?;
            let heads = |w: &Tensor, count: usize| y.matmul(w)?.reshape((n, count, s.head_dim()));
            let q = self.turn(&heads(&layer.wq, s.heads)?, &positions)?;
            let k = self.turn(&heads(&layer.wk, s.kv_heads)?, &positions)?;
            let v = heads(&layer.wv, s.kv_heads)?;
            x = (x + attention.attend(i, &q, &k, &v)?.matmul(&layer.wo)?)?;
            let y = ops::rms_norm(&x, &layer.ffn_norm, EPSILON)?;
            let gated = (ops::silu(&y.matmul(&layer.gate)?)? * y.matmul(&layer.up)?)?;
            x = (x + gated.matmul(&layer.down)?)?;
        }
        let x = x.index_select(&Tensor::new(last, &Device::Cpu)?, 0)?;
        let x = ops::rms_norm(&x, &self.final_norm, EPSILON)?;
        x.matmul(&self.classifier)?.argmax(1)?.to_vec1()
    }
}
