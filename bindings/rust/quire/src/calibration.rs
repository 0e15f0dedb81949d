// SPDX-License-Identifier: Apache-2.0

use std::ffi::c_void;
use std::fmt;

use quire_sys as sys;

use crate::call::{bytes, desc, first, first_mut, invoke, Api};
use crate::{Instance, Result};

/// The largest magnitudes of K and V for each layer and KV head, measured over a run: the scales of
/// codes are made from them. Keep [`Calibration::bytes`] in a file; the format is
/// docs/calibration.md.
#[derive(Clone)]
pub struct Calibration {
    api: Api,
    content: Vec<u8>,
}

/// One layer's numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerMagnitudes {
    /// One per KV head; 0: never written.
    pub k: Vec<f32>,
    /// One per KV head.
    pub v: Vec<f32>,
}

impl Instance {
    /// Reads a calibration that was kept. Damaged or foreign content is refused.
    pub fn calibration(&self, content: &[u8]) -> Result<Calibration> {
        let read = Calibration { api: self.inner.api, content: content.to_vec() };
        read.info()?;
        Ok(read)
    }
}

impl Calibration {
    pub(crate) fn saved(api: Api, content: Vec<u8>) -> Self {
        Self { api, content }
    }

    /// Returns the bytes to keep.
    pub fn bytes(&self) -> &[u8] {
        &self.content
    }

    fn parts(&self) -> (*const c_void, u64) {
        (first(&self.content).cast(), self.content.len() as u64)
    }

    fn info(&self) -> Result<sys::quire_calibration_info> {
        let (at, size) = self.parts();
        let mut info = desc!(quire_calibration_info {});
        invoke!(self.api, calibration_get_info(at, size, &mut info))?;
        Ok(info)
    }

    /// Returns the number of layers of the model.
    pub fn layer_count(&self) -> Result<u32> {
        Ok(self.info()?.layer_count)
    }

    /// Returns how many magnitudes are 0, which make no scale.
    pub fn unwritten(&self) -> Result<u32> {
        Ok(self.info()?.unwritten)
    }

    /// Returns one layer's numbers.
    pub fn layer(&self, layer: u32) -> Result<LayerMagnitudes> {
        let (at, size) = self.parts();
        let mut shape = desc!(quire_calibration_layer {});
        let mut numbers = vec![0.0f32; 2 * self.info()?.max_kv_heads as usize];
        let room = numbers.len() as u32;
        let amax = first_mut(&mut numbers);
        invoke!(self.api, calibration_get_layer(at, size, layer, &mut shape, amax, room))?;
        let heads = shape.kv_heads as usize;
        Ok(LayerMagnitudes { k: numbers[..heads].to_vec(), v: numbers[heads..2 * heads].to_vec() })
    }

    /// Takes the larger of each pair of numbers, to merge several runs or the ranks of one.
    pub fn merge(&self, other: &Self) -> Result<Self> {
        let ((a, a_size), (b, b_size)) = (self.parts(), other.parts());
        let content = bytes(|to, capacity, size| {
            let to = to.cast();
            invoke!(self.api, calibration_merge(a, a_size, b, b_size, to, capacity, size))
        })?;
        Ok(Self { api: self.api, content })
    }
}

impl fmt::Debug for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calibration({} bytes)", self.content.len())
    }
}
