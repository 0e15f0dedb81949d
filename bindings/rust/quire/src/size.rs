// SPDX-License-Identifier: Apache-2.0

use quire_sys as sys;

use crate::call::{desc, invoke};
use crate::{Instance, Result};

/// A model, its use and one device in numbers; 0 is a default or unknown: `quire_size_desc` of
/// size.h.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)] // size.h documents them under these names
pub struct SizeModel {
    pub parameters: u64,
    pub layer_count: u32,
    pub kv_heads: u32,
    pub q_heads: u32,
    pub k_head_dim: u32,
    pub v_head_dim: u32,
    pub kv_bits: u32,
    pub weight_bits: u32,
    pub is_latent: bool,
    pub scale_bytes: u32,
    pub block_tokens: u32,
    pub batch: u32,
    pub device_count: u32,
    pub context_tokens: u64,
    pub memory_bytes: u64,
    pub reserve_bytes: u64,
    pub utilization: f64,
    pub bytes_per_second: f64,
    pub operations_per_second: f64,
}

/// What takes longer in a decode step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Neither rate is known.
    Unknown,
    /// Reading memory.
    Bandwidth,
    /// Computing.
    Compute,
}

/// What a deployment holds, over all devices.
#[derive(Debug, Clone, Copy)]
pub struct SizeEstimate {
    /// Bytes of K and V.
    pub kv_bytes_per_token: u64,
    /// Bytes left for K and V.
    pub pool_bytes: u64,
    /// Usable blocks.
    pub blocks: u64,
    /// Tokens in those blocks.
    pub tokens: u64,
    /// Sequences of `context_tokens` each.
    pub max_sequences: u64,
    /// Sequences decoded at once.
    pub batch: u32,
    /// What takes longer in a decode step.
    pub bound: Bound,
    /// Time of a decode step.
    pub step_seconds: f64,
    /// Over all sequences.
    pub tokens_per_second: f64,
}

impl Instance {
    /// Estimates how much a deployment holds and how fast it decodes, from numbers alone.
    pub fn size_estimate(&self, model: &SizeModel) -> Result<SizeEstimate> {
        let desc = desc!(quire_size_desc {
            flags: if model.is_latent { sys::QUIRE_SIZE_LATENT } else { 0 },
            parameters: model.parameters,
            layer_count: model.layer_count,
            kv_heads: model.kv_heads,
            q_heads: model.q_heads,
            k_head_dim: model.k_head_dim,
            v_head_dim: model.v_head_dim,
            kv_bits: model.kv_bits,
            weight_bits: model.weight_bits,
            block_tokens: model.block_tokens,
            batch: model.batch,
            device_count: model.device_count,
            context_tokens: model.context_tokens,
            memory_bytes: model.memory_bytes,
            reserve_bytes: model.reserve_bytes,
            utilization: model.utilization,
            bytes_per_second: model.bytes_per_second,
            operations_per_second: model.operations_per_second,
            scale_bytes: model.scale_bytes,
        });
        let mut info = desc!(quire_size_info {});
        invoke!(self.inner.api, size_estimate(&desc, &mut info))?;
        Ok(SizeEstimate {
            kv_bytes_per_token: info.kv_bytes_per_token,
            pool_bytes: info.pool_bytes,
            blocks: info.blocks,
            tokens: info.tokens,
            max_sequences: info.max_sequences,
            batch: info.batch,
            bound: match info.bound {
                sys::QUIRE_BOUND_BANDWIDTH => Bound::Bandwidth,
                sys::QUIRE_BOUND_COMPUTE => Bound::Compute,
                _ => Bound::Unknown,
            },
            step_seconds: info.step_seconds,
            tokens_per_second: info.tokens_per_second,
        })
    }
}
