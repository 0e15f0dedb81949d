// SPDX-License-Identifier: Apache-2.0

use quire_sys as sys;

use crate::call::{count, desc};
use crate::{Device, Result};

/// Type of an element.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DType {
    /// The library's default: f16 for K and V, f32 for q and out.
    #[default]
    Default,
    /// Four bits, two elements per byte. Like the other codes, only for K and V in a pool.
    I4,
    /// Eight bits.
    I8,
    /// Half precision.
    F16,
    /// Single precision.
    F32,
    /// Brain float.
    BF16,
    /// OCP E4M3, finite only.
    F8E4M3,
    /// OCP E5M2.
    F8E5M2,
}

impl DType {
    pub(crate) fn raw(self) -> u32 {
        match self {
            Self::Default => 0,
            Self::I4 => sys::QUIRE_DTYPE_I4,
            Self::I8 => sys::QUIRE_DTYPE_I8,
            Self::F16 => sys::QUIRE_DTYPE_F16,
            Self::F32 => sys::QUIRE_DTYPE_F32,
            Self::BF16 => sys::QUIRE_DTYPE_BF16,
            Self::F8E4M3 => sys::QUIRE_DTYPE_F8_E4M3FN,
            Self::F8E5M2 => sys::QUIRE_DTYPE_F8_E5M2,
        }
    }

    /// Bits of an element of q, out, k or v as an engine gives them.
    pub(crate) fn operand_bits(self) -> u64 {
        match self {
            Self::Default | Self::F32 => 32,
            Self::F16 | Self::BF16 => 16,
            Self::I8 | Self::F8E4M3 | Self::F8E5M2 => 8,
            Self::I4 => 4,
        }
    }
}

/// Which tokens a token sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupKind {
    /// All tokens before it.
    #[default]
    Full,
    /// The newest `tokens`, itself among them, and the sequence's first `sinks`.
    Window {
        /// Size of the window.
        tokens: u32,
        /// Tokens that are kept for as long as the sequence lives.
        sinks: u32,
    },
    /// Those before it in its own chunk.
    Chunked {
        /// Size of a chunk.
        tokens: u32,
    },
    /// All before it, over one latent row per token that all query heads share (MLA).
    Latent,
    /// Another input, written once, such as an encoder's output.
    Cross,
    /// One state per block (Mamba, linear attention); only without memory.
    Recurrent,
}

/// Where the scales of codes come from; types that hold values have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// No scales.
    #[default]
    None,
    /// From a calibration, one per layer.
    Tensor,
    /// From a calibration, one per KV head.
    Head,
    /// Made at each write, one per token and KV head.
    TokenHead,
}

impl Scale {
    fn raw(self) -> u32 {
        match self {
            Self::None => sys::QUIRE_SCALE_NONE,
            Self::Tensor => sys::QUIRE_SCALE_TENSOR,
            Self::Head => sys::QUIRE_SCALE_HEAD,
            Self::TokenHead => sys::QUIRE_SCALE_TOKEN_HEAD,
        }
    }
}

/// Layers that share attention kind and geometry.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// Which tokens a token sees.
    pub kind: GroupKind,
    /// How many layers.
    pub layers: u32,
    /// Heads of K and V.
    pub kv_heads: u32,
    /// Elements of a row of K.
    pub head_dim: u32,
    /// Elements of a row of V; 0: the same as K.
    pub v_head_dim: u32,
    /// Type of K in the pool.
    pub dtype: DType,
    /// Type of V in the pool; `Default`: the same as K.
    pub v_dtype: DType,
    /// Scales of K's codes.
    pub scale: Scale,
    /// Scales of V's codes, if `v_dtype` is given.
    pub v_scale: Scale,
    /// Blocks of its pool; 0: from the cache's size.
    pub blocks: u32,
    /// Tokens of its blocks; 0: the cache's.
    pub block_tokens: u32,
    /// Only for [`GroupKind::Recurrent`]: where its snapshots are; 0: at the end of each block.
    pub state_interval: u32,
    /// Only for [`GroupKind::Recurrent`]: blocks beside that of the running state.
    pub draft_states: u32,
    /// 0, or bytes of a token in a layer, in a format that the library does not know. Then there
    /// are no heads, dims and types, and the cache has no memory.
    pub opaque_bytes: u32,
}

impl Group {
    pub(crate) fn v_dim(&self) -> u32 {
        if self.v_head_dim == 0 {
            self.head_dim
        } else {
            self.v_head_dim
        }
    }

    pub(crate) fn raw(&self) -> sys::quire_group_desc {
        let (kind, window, sink_tokens) = match self.kind {
            GroupKind::Full => (sys::QUIRE_GROUP_FULL, 0, 0),
            GroupKind::Window { tokens, sinks } => (sys::QUIRE_GROUP_WINDOW, tokens, sinks),
            GroupKind::Chunked { tokens } => (sys::QUIRE_GROUP_CHUNKED, tokens, 0),
            GroupKind::Latent => (sys::QUIRE_GROUP_LATENT, 0, 0),
            GroupKind::Cross => (sys::QUIRE_GROUP_CROSS, 0, 0),
            GroupKind::Recurrent => (sys::QUIRE_GROUP_RECURRENT, 0, 0),
        };
        desc!(quire_group_desc {
            kind: kind,
            window: window,
            layer_count: self.layers,
            kv_heads: self.kv_heads,
            k_head_dim: self.head_dim,
            v_head_dim: self.v_dim(),
            k_dtype: self.dtype.raw(),
            v_dtype: self.v_dtype.raw(),
            blocks: self.blocks,
            sink_tokens: sink_tokens,
            k_scale: self.scale.raw(),
            v_scale: self.v_scale.raw(),
            block_tokens: self.block_tokens,
            state_interval: self.state_interval,
            draft_states: self.draft_states,
            opaque_bytes: self.opaque_bytes,
        })
    }
}

/// One device's part of a cache: a range of the layers and of the KV heads. A count of 0 means all
/// that follow.
#[derive(Debug, Clone)]
pub struct Shard {
    /// The device; each shard needs a [`Device`] that was opened for it.
    pub device: Device,
    /// The first layer.
    pub layer_begin: u32,
    /// Number of layers.
    pub layer_count: u32,
    /// The first KV head, counted in the group that has the most.
    pub head_begin: u32,
    /// Number of KV heads.
    pub head_count: u32,
}

impl Shard {
    /// All of a model, on one device.
    pub fn whole(device: &Device) -> Self {
        let device = device.clone();
        Self { device, layer_begin: 0, layer_count: 0, head_begin: 0, head_count: 0 }
    }

    pub(crate) fn raw(&self) -> sys::quire_shard_desc {
        desc!(quire_shard_desc {
            device: self.device.pointer(),
            layer_begin: self.layer_begin,
            layer_count: self.layer_count,
            head_begin: self.head_begin,
            head_count: self.head_count,
        })
    }
}

/// Returns the group of each layer, in the library's numbering.
pub(crate) fn layers_of(groups: &[Group], named: Option<&[u32]>) -> Result<Vec<u32>> {
    let mut layers = Vec::new();
    for (g, group) in groups.iter().enumerate() {
        // Still more than the library takes, so it refuses the group itself.
        let many = group.layers.min(1 << 16) as usize;
        layers.extend(std::iter::repeat_n(count("groups", g)?, many));
    }
    match named {
        None => Ok(layers),
        Some(named) if named.len() == layers.len() => Ok(named.to_vec()),
        Some(named) => Err(crate::Error::argument(format!(
            "layer_groups names {} layers; the groups have {}",
            named.len(),
            layers.len()
        ))),
    }
}
