// SPDX-License-Identifier: Apache-2.0

use quire::{Lease, LeaseOptions, Match, OpenStep, Result, Shortage};

use super::{numbers, reason, spaced, Script};

/// A lease and its hand.
pub struct Leased {
    lease: Lease,
    hand: Vec<i32>,
}

fn lacks(short: Shortage) -> String {
    format!("short {} {}", short.blocks, reason(Some(short.reason)))
}

impl Leased {
    /// Runs a call that lists ids, which become the hand.
    fn ask(
        &mut self,
        room: usize,
        call: impl FnOnce(&Self, &mut [i32]) -> Result<std::result::Result<usize, Shortage>>,
    ) -> Result<String> {
        let mut ids = vec![0; room];
        Ok(match call(self, &mut ids)? {
            Ok(count) => {
                ids.truncate(count);
                self.hand = ids;
                spaced(&self.hand)
            }
            Err(short) => lacks(short),
        })
    }

    /// A change of the open step.
    fn change(&mut self, op: &str, step: &mut OpenStep, a: &[u32; 6]) -> Result<String> {
        let held = self.hand.len();
        match op {
            "take" => {
                let count = a[1] as usize;
                self.ask(count, |of, ids| Ok(of.lease.take(step, 0, ids)?.map(|()| count)))
            }
            "publish" => self.ask(held, |of, named| {
                let tokens = numbers(a[1], held as u32 * 4, 0);
                Ok(of.lease.publish(step, &tokens, &of.hand, named)?.map(|_| held))
            }),
            "match" => self.ask(a[2] as usize / 4, |of, ids| {
                of.lease.find_and_pin(step, &numbers(a[1], a[2], 0), ids)
            }),
            "give" => {
                let count = held.min(a[1] as usize);
                self.lease.give(step, 0, &self.hand[..count])?;
                Ok("ok".to_owned())
            }
            _ => {
                let pinned = self.lease.pin(step, 0, &[a[1] as i32])?;
                Ok(pinned.map_or_else(lacks, |()| "ok".to_owned()))
            }
        }
    }
}

impl Script {
    pub fn lease(&mut self, a: &[u32; 6]) -> Result<String> {
        if self.leases.contains_key(&a[0]) {
            return Ok("taken".to_owned());
        }
        let lease = self.cache.lease(LeaseOptions::default())?;
        self.leases.insert(a[0], Leased { lease, hand: Vec::new() });
        Ok("ok".to_owned())
    }

    pub fn of_lease(&mut self, op: &str, a: &[u32; 6]) -> Result<Option<String>> {
        let Some(of) = self.leases.get_mut(&a[0]) else { return Ok(None) };
        let said = match op {
            "unlease" => {
                of.lease.end()?;
                self.leases.remove(&a[0]);
                "ok".to_owned()
            }
            "match" if a[3] < 2 => {
                let how = [Match::Look, Match::Touch][a[3] as usize];
                let tokens = numbers(a[1], a[2], 0);
                of.ask(tokens.len() / 4, |of, ids| of.lease.find(None, &tokens, how, ids).map(Ok))?
            }
            "forget" => spaced([of.lease.forget(0, &of.hand)?]),
            "held" => spaced(of.lease.blocks(0)?.iter().flat_map(|block| {
                let flags = i64::from(block.is_published) + 2 * i64::from(block.is_owned);
                [block.block.into(), block.holds.into(), flags]
            })),
            _ => match &mut self.step {
                None => return Ok(None),
                Some(step) => of.change(op, step, a)?,
            },
        };
        Ok(Some(said))
    }
}
