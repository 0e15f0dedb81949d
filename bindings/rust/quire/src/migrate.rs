// SPDX-License-Identifier: Apache-2.0

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use quire_sys as sys;

use crate::call::{count, desc, first, first_mut, in_time, invoke, nanoseconds, stride_of};
use crate::{Cache, Error, ErrorKind, PoolSize, Result, Shard};

// How long one try blocks others from asking where the cache is.
const PATIENCE: Duration = Duration::from_millis(1);

/// Where a cache moves to: `quire_migrate_desc` of migrate.h.
#[derive(Debug, Clone, Copy)]
pub struct MigrateOptions<'a> {
    /// As for a new cache; empty for a bookkeeping-only cache, which stays one.
    pub shards: &'a [Shard],
    /// Size of each group's pool; [`PoolSize::OfGroups`]: as now, or as `group_blocks` says.
    pub size: PoolSize,
    /// Blocks per group; 0: from `size`.
    pub group_blocks: Option<&'a [u32]>,
    /// Bytes of the host tier on each shard.
    pub host_bytes: u64,
    /// Blocks of the host tier in each group. With neither, the host tier keeps its number.
    pub host_blocks: u32,
    /// Copies the host tier even if its memory could change hands, so that nothing stays on the
    /// devices that the cache leaves.
    pub copy_host_tier: bool,
    /// Lists the blocks that moved along.
    pub list_moves: bool,
    /// How long to wait for steps that still run; `None`: for ever. Not for
    /// [`Cache::try_migrate`].
    pub timeout: Option<Duration>,
}

impl Default for MigrateOptions<'_> {
    fn default() -> Self {
        Self {
            shards: &[],
            size: PoolSize::OfGroups,
            group_blocks: None,
            host_bytes: 0,
            host_blocks: 0,
            copy_host_tier: false,
            list_moves: false,
            timeout: None,
        }
    }
}

/// A block that moved along: `quire_block_move` of migrate.h.
pub type BlockMove = sys::quire_block_move;

/// What a migration did.
#[must_use = "check is_moved: the cache may not have moved"]
#[derive(Debug, Clone, Default)]
pub struct Migration {
    /// False: the live blocks do not fit, and nothing changed; see `blocks_short`.
    pub is_moved: bool,
    /// Moved blocks: those held by sequences, and cached ones.
    pub blocks_moved: u64,
    /// Cached blocks for which there was no room.
    pub blocks_dropped: u64,
    /// Blocks that the shortest group or tier lacks.
    pub blocks_short: u32,
    /// Bytes of K, V and their scales that moved.
    pub bytes_moved: u64,
    /// Those of blocks that sequences hold.
    pub live_bytes: u64,
    /// Blocks of the host tier whose memory changed hands.
    pub host_blocks_kept: u64,
    /// Blocks of the host tier copied from host to host.
    pub host_blocks_copied: u64,
    /// Bytes of those copies.
    pub host_bytes_copied: u64,
    /// The blocks that moved along, if `list_moves` was set.
    pub moves: Vec<BlockMove>,
}

/// True if the cache has moved; how much, and the list of moves.
type Moved = (bool, sys::quire_migrate_info, Vec<BlockMove>);

impl Cache {
    /// Moves the cache to other devices, also to those of another vendor, or to pools of another
    /// size: all of it, or nothing. Sequences, their K and V, cached prefixes and the host tier
    /// move along, and nothing is computed again. First waits until the finished steps have run.
    ///
    /// The cache keeps its new devices open, and the old ones for as long as their memory holds the
    /// host tier. Batches and queues from before the move can no longer be used: calls on those
    /// batches are [`ErrorKind::Stale`], and steps on those queues [`ErrorKind::Argument`].
    ///
    /// [`ErrorKind::Busy`]: a step is open or not finished, tables are read
    /// ([`crate::HostTables`]), a hand-over goes on, or the cache is being moved already.
    /// [`ErrorKind::Timeout`]: steps still run. [`ErrorKind::Argument`]: the shards or the numbers
    /// of blocks are wrong. [`ErrorKind::Unsupported`]: a target cannot serve the cache, or a
    /// leader's or follower's numbers of blocks would change. [`ErrorKind::DeviceMemory`]: both
    /// pools do not fit at once. [`ErrorKind::DeviceLost`]: a device failed during a copy. After
    /// any of them the cache goes on where it is.
    ///
    /// ```
    /// # fn f(cache: quire::Cache, instance: quire::Instance) -> quire::Result<()> {
    /// use quire::{BatchOptions, DeviceOptions, MigrateOptions, PoolSize, Shard};
    ///
    /// let device = instance.open_device(DeviceOptions::default())?; // of any backend
    /// let moved = cache.migrate(MigrateOptions {
    ///     shards: &[Shard::whole(&device)],
    ///     size: PoolSize::Blocks(4096),
    ///     ..MigrateOptions::default()
    /// })?;
    /// if moved.is_moved {
    ///     let queue = device.queue()?;
    ///     let batch = cache.batch(BatchOptions::default())?; // and go on with these
    ///     # drop((queue, batch));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn migrate(&self, options: MigrateOptions<'_>) -> Result<Migration> {
        self.move_by(&options, |desc| self.move_in_time(desc, &options))
    }

    /// As [`Cache::migrate`], but does not wait for steps: [`ErrorKind::Busy`] while finished ones
    /// still run.
    pub fn try_migrate(&self, options: MigrateOptions<'_>) -> Result<Migration> {
        if options.timeout.is_some() {
            let message = "timeout is set, but try_migrate does not wait for steps";
            return Err(Error::argument(message));
        }
        self.move_by(&options, |desc| self.move_once(desc, &options, None))
    }

    fn move_by(
        &self,
        options: &MigrateOptions<'_>,
        run: impl FnOnce(sys::quire_migrate_desc) -> Result<Moved>,
    ) -> Result<Migration> {
        if let Some(blocks) = options.group_blocks {
            if blocks.len() != self.inner.groups.len() {
                let (given, groups) = (blocks.len(), self.inner.groups.len());
                let message =
                    format!("group_blocks has {given} numbers; there are {groups} groups");
                return Err(Error::argument(message));
            }
        }
        let shards: Vec<_> = options.shards.iter().map(Shard::raw).collect();
        let mut desc = desc!(quire_migrate_desc {
            flags: if options.copy_host_tier { sys::QUIRE_MIGRATE_COPY_HOST_TIER } else { 0 },
            shards: first(&shards),
            group_blocks: options.group_blocks.map_or(std::ptr::null(), first),
            shard_count: count("shards", shards.len())?,
            shard_stride: stride_of::<sys::quire_shard_desc>(),
            move_stride: stride_of::<BlockMove>(),
            host_bytes: options.host_bytes,
            host_blocks: options.host_blocks,
        });
        match options.size {
            PoolSize::OfGroups => {}
            PoolSize::Blocks(blocks) => desc.blocks = blocks,
            PoolSize::Bytes(bytes) => desc.pool_bytes = bytes,
            PoolSize::Fraction(share, reserve) => {
                desc.pool_fraction = share;
                desc.reserve_bytes = reserve;
            }
        }
        let (is_moved, info, moves) = run(desc)?;
        Ok(Migration {
            is_moved,
            blocks_moved: info.blocks_moved,
            blocks_dropped: info.blocks_dropped,
            blocks_short: info.blocks_short,
            bytes_moved: info.bytes_moved,
            live_bytes: info.live_bytes,
            host_blocks_kept: info.host_blocks_kept,
            host_blocks_copied: info.host_blocks_copied,
            host_bytes_copied: info.host_bytes_copied,
            moves,
        })
    }

    /// Tries again until the steps that still run are done. Between two tries other calls may run,
    /// and finish what those steps wait for.
    fn move_in_time(
        &self,
        desc: sys::quire_migrate_desc,
        options: &MigrateOptions<'_>,
    ) -> Result<Moved> {
        // An end past the clock's range never comes.
        let end = options.timeout.and_then(|time| Instant::now().checked_add(time));
        loop {
            let left = end.map_or(PATIENCE, |end| end.saturating_duration_since(Instant::now()));
            match self.move_once(desc, options, Some(left.min(PATIENCE))) {
                Err(error) if error.kind() == ErrorKind::Timeout && !left.is_zero() => {
                    std::thread::yield_now();
                }
                done => return done,
            }
        }
    }

    /// Moves the cache, or leaves it; waits for steps for so long. `None`: not at all.
    fn move_once(
        &self,
        desc: sys::quire_migrate_desc,
        options: &MigrateOptions<'_>,
        patience: Option<Duration>,
    ) -> Result<Moved> {
        let has_host_tier = self.info()?.host_bytes != 0;
        let inner = &self.inner;
        // Calls that ask where the cache is wait until the move is over.
        let mut placement = inner.placement.write().unwrap_or_else(PoisonError::into_inner);
        let queues = inner.known_queues();
        let (is_moved, info, moves) =
            inner.while_moving(|| self.migrate_with(desc, options, patience))?;
        if is_moved {
            // The host tier may still be in memory of a device from before.
            let keeps = has_host_tier && !options.copy_host_tier;
            inner.place(&mut placement, options.shards, keeps);
            inner.forget_queues(&queues);
        }
        drop(placement);
        inner.end_what_is_dropped();
        Ok((is_moved, info, moves))
    }

    /// Migrates; tries again with room for all moves if there was too little.
    fn migrate_with(
        &self,
        mut desc: sys::quire_migrate_desc,
        options: &MigrateOptions<'_>,
        patience: Option<Duration>,
    ) -> Result<Moved> {
        let mut moves = vec![BlockMove::default(); usize::from(options.list_moves)];
        loop {
            desc.moves = first_mut(&mut moves);
            desc.move_capacity = count("moves", moves.len())?;
            let mut info = desc!(quire_migrate_info {});
            let (api, cache) = (self.inner.api, self.inner.pointer());
            let status = match patience {
                Some(_) => {
                    let time = nanoseconds(patience);
                    in_time(invoke!(api, cache_migrate_wait(cache, &desc, &mut info, time))?)?
                }
                None => invoke!(api, cache_migrate(cache, &desc, &mut info))?,
            };
            match status {
                sys::QUIRE_S_INCOMPLETE => {
                    moves.resize(info.move_count as usize, BlockMove::default());
                }
                sys::QUIRE_S_NO_BLOCKS => return Ok((false, info, Vec::new())),
                _ => {
                    moves.truncate(info.move_count as usize);
                    return Ok((true, info, moves));
                }
            }
        }
    }
}
