// SPDX-License-Identifier: Apache-2.0
//
// rows: where the rows of a call's arrays lie, and that no row that the call writes overlaps
// another array. Safe code could otherwise let kernels read what others write at the same time.
//
// Arrays with equal strides may be interleaved, such as q, k and v in one array of the projection.

use crate::{Error, Result};

/// An array of a call, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    pub what: &'static str,
    pub address: u64,
    pub count: u64,
    pub row: u64,
    pub stride: u64,
    pub is_written: bool,
}

impl Rows {
    pub fn written(self) -> Self {
        Self { is_written: true, ..self }
    }

    fn begin(&self, index: u64) -> u128 {
        u128::from(self.address) + u128::from(index) * u128::from(self.stride)
    }

    fn end(&self, index: u64) -> u128 {
        self.begin(index) + u128::from(self.row)
    }

    fn is_empty(&self) -> bool {
        self.count == 0 || self.row == 0
    }

    /// The first row that ends after `at`.
    fn first_after(&self, at: u128) -> u64 {
        let past = at.saturating_sub(self.end(0));
        if at < self.end(0) {
            return 0;
        }
        u64::try_from(past / u128::from(self.stride)).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn overlaps(&self, other: &Self) -> bool {
        if self.is_empty() || other.is_empty() {
            return false;
        }
        let is_apart = |a: &Self, b: &Self| a.end(a.count - 1) <= b.begin(0);
        if is_apart(self, other) || is_apart(other, self) {
            return false;
        }
        let (few, many) = if self.count <= other.count { (self, other) } else { (other, self) };
        (0..few.count).any(|i| {
            let next = many.first_after(few.begin(i));
            next < many.count && many.begin(next) < few.end(i)
        })
    }
}

/// Refuses a call that would write what it, too, reads or writes elsewhere.
pub(crate) fn check_apart(arrays: &[Rows]) -> Result<()> {
    for (i, a) in arrays.iter().enumerate() {
        if a.is_written && a.count > 1 && a.stride < a.row {
            return Err(Error::argument(format!(
                "{}: rows of {} bytes that are {} bytes apart overlap, and the call writes them",
                a.what, a.row, a.stride
            )));
        }
        for b in &arrays[i + 1..] {
            if (a.is_written || b.is_written) && a.overlaps(b) {
                let written = if a.is_written { a } else { b };
                return Err(Error::argument(format!(
                    "{} and {} overlap, and the call writes {}",
                    a.what, b.what, written.what
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(address: u64, count: u64, row: u64, stride: u64) -> Rows {
        Rows { what: "rows", address, count, row, stride, is_written: true }
    }

    /// By looking at every byte.
    fn touch(a: &Rows, b: &Rows) -> bool {
        let bytes = |r: &Rows| {
            let r = *r;
            (0..r.count)
                .flat_map(move |i| (0..r.row).map(move |byte| r.address + i * r.stride + byte))
        };
        bytes(a).any(|at| bytes(b).any(|other| at == other))
    }

    #[test]
    fn overlap_is_that_of_the_bytes() {
        let mut overlaps = 0;
        for address in 0..14 {
            for (count, row, stride) in
                [(0, 2, 2), (1, 3, 3), (2, 2, 5), (3, 2, 4), (4, 1, 3), (3, 0, 1), (2, 4, 4)]
            {
                for (others, other_row, other_stride) in
                    [(1, 1, 1), (2, 2, 5), (3, 2, 4), (2, 3, 7), (5, 1, 1), (1, 12, 12)]
                {
                    let a = rows(address, count, row, stride);
                    let b = rows(6, others, other_row, other_stride);
                    assert_eq!(a.overlaps(&b), touch(&a, &b), "{a:?} {b:?}");
                    assert_eq!(b.overlaps(&a), touch(&a, &b), "{a:?} {b:?}");
                    overlaps += usize::from(a.overlaps(&b));
                }
            }
        }
        assert!(overlaps > 100);
    }

    #[test]
    fn addresses_at_the_end_do_not_overflow() {
        let a = rows(u64::MAX - 1, u64::MAX, u64::MAX, u64::MAX);
        assert!(a.overlaps(&a));
        assert!(!a.overlaps(&rows(0, 1, 8, 8)));
    }
}
