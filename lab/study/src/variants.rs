//! Which replies of a target are of one object.
//!
//! A server that codes (gzip, br) has two or three bodies for one target, and sends a client the
//! one that it takes. To a cache each is an object of its own; taken for one object, the smaller
//! body looks like a reply that was cut off, and the larger one like a change. So a target has
//! *lines*, each an object:
//!
//! * where the log tells codings, a line for each coding of the target;
//! * else a line for each size that comes back: a reply had it, then replies had another size that
//!   recurs, then it was there again. What has changed or was cut off does not come back.
//!
//! A reply belongs to the line that has its size or one within 5 % of it (then the line's object
//! has changed); a size that comes back and is farther from all lines begins one; any other is, of
//! the nearest line, a change if it is larger and a part if it is smaller ([`Changes::Small`]). A
//! line whose size differs by less than 5 % from another's is not told apart from a change: pages
//! that count their visitors come back to old sizes, too. A reply without a body (304, HEAD) or of
//! a part belongs to the line that was used last.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use nicache_trace::{Coding, Record, mix};

use crate::load_config::{Changes, LoadConfig, Replies, Variants};
use crate::{Access, TooManyObjects};

/// Most lines of a target; one with more is not one in several codings.
const LINES_MAX: usize = 16;
const NONE: u32 = u32::MAX;

/// Low bits of a note: the coding.
const CODING_BITS: u8 = 7;
/// The record told the size of the whole object, or a part of it: its bytes are not the size of an
/// object.
const BLOCK_LIKE: u8 = 8;

/// What is kept of a record beside its access.
pub(crate) fn note_of(coding: Coding, is_block_like: bool) -> u8 {
    coding as u8 | if is_block_like { BLOCK_LIKE } else { 0 }
}

/// The accesses of a trace by target: marked as changed where something other than a size tells so,
/// as without fill where the reply is not of the whole object.
#[derive(Clone, Debug)]
pub(crate) struct Targets<'a> {
    pub accesses: Vec<Access>,
    /// By access; empty if all are 0.
    pub notes: &'a [u8],
    pub targets: usize,
    /// Bytes of the object by target, as far as replies of parts tell; empty if none does.
    pub extents: &'a [u64],
}

/// The accesses by object.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub accesses: Vec<Access>,
    pub objects: u32,
    pub changed: u64,
    pub partial: u64,
    /// Targets that have several lines.
    pub targets: u64,
    /// Requests for them.
    pub requests: u64,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    /// Size of its object at present; 0 if no reply has told.
    bytes: u64,
    bytes_max: u64,
    /// Changes of the target, told by something other than sizes, that were seen here.
    generation: u32,
    target: u32,
    /// The next line of the target.
    next: u32,
    coding: Coding,
}

#[derive(Clone, Copy, Debug)]
struct Target {
    first: u32,
    last_used: u32,
    generation: u32,
    lines: u8,
}

/// What a reply says of its line.
enum Said {
    Nothing,
    Changed,
    Cut,
}

struct Resolver<'a> {
    config: &'a LoadConfig,
    by_coding: bool,
    returning: HashSet<(u32, u32), FixedState>,
    lines: Vec<Line>,
    targets: Vec<Target>,
}

/// The object of a record where records are not looked at together: its target's, or one of its own
/// if the reply was coded.
pub fn coded_object(record: &Record) -> u64 {
    if record.coding > Coding::Identity {
        mix(record.object ^ record.coding as u64)
    } else {
        record.object
    }
}

/// Gives each access its object.
///
/// # Errors
/// [`TooManyObjects`]
pub(crate) fn resolve(
    all: Targets<'_>,
    config: &LoadConfig,
    variants: Variants,
) -> Result<Lines, TooManyObjects> {
    let tells_coding = all.notes.iter().any(|note| note & CODING_BITS > Coding::Identity as u8);
    let by_coding = tells_coding && matches!(variants, Variants::Auto | Variants::Coding);
    let by_size = !by_coding
        && matches!(variants, Variants::Auto | Variants::Sizes)
        && config.changes != Changes::Never;
    if !by_coding && config.changes == Changes::Never && config.replies == Replies::AsLogged {
        let partial =
            all.accesses.iter().filter(|access| !access.fills() && access.bytes() > 0).count()
                as u64;
        return Ok(Lines {
            objects: all.targets as u32,
            partial,
            accesses: all.accesses,
            ..Lines::default()
        });
    }
    let mut resolver = Resolver {
        config,
        by_coding,
        returning: if by_size { returning(&all) } else { HashSet::default() },
        lines: Vec::new(),
        targets: vec![
            Target { first: NONE, last_used: NONE, generation: 0, lines: 0 };
            all.targets
        ],
    };
    let mut result = Lines { accesses: all.accesses, ..Lines::default() };
    for (at, access) in result.accesses.iter_mut().enumerate() {
        let note = all.notes.get(at).copied().unwrap_or(0);
        let (number, changed, fills) = resolver.access(*access, note)?;
        result.changed += u64::from(changed);
        result.partial += u64::from(!fills && access.bytes() > 0);
        let fills = fills || config.replies == Replies::Whole;
        *access =
            Access::new(number, access.bytes()).changed(changed).without_fill(!fills).ending(true);
    }
    let target_of = |access: &Access| resolver.lines[access.object() as usize].target as usize;
    let has_several = |access: &Access| resolver.targets[target_of(access)].lines > 1;
    result.targets = resolver.targets.iter().filter(|target| target.lines > 1).count() as u64;
    if result.targets > 0 {
        result.requests =
            result.accesses.iter().filter(|access| has_several(access)).count() as u64;
    }
    result.objects = resolver.lines.len() as u32;
    if config.replies == Replies::Whole {
        for access in &mut result.accesses {
            // Of which of several lines a part was, nobody knows.
            let extent = if has_several(access) {
                None
            } else {
                all.extents.get(target_of(access)).copied()
            };
            let bytes = resolver.lines[access.object() as usize].bytes_max.max(extent.unwrap_or(0));
            *access = Access::new(access.object(), bytes).changed(access.is_changed()).ending(true);
        }
    }
    Ok(result)
}

/// Targets and sizes of whole replies that come back after others; what is there but once (a reply
/// that was cut off) is not another one.
fn returning(all: &Targets<'_>) -> HashSet<(u32, u32), FixedState> {
    /// Of most targets all replies have one size.
    #[derive(Clone, Copy, Default)]
    struct Seen {
        bytes: Option<u32>,
        has_others: bool,
    }
    let whole = || {
        let is_whole = |(at, access): &(usize, &Access)| {
            access.fills()
                && access.bytes() > 0
                && all.notes.get(*at).is_none_or(|note| note & BLOCK_LIKE == 0)
        };
        let sizes = |(_, access): (usize, &Access)| (access.object(), access.bytes() as u32);
        all.accesses.iter().enumerate().filter(is_whole).map(sizes)
    };
    let mut seen = vec![Seen::default(); all.targets];
    for (target, bytes) in whole() {
        let seen = &mut seen[target as usize];
        seen.has_others |= seen.bytes.is_some_and(|first| first != bytes);
        seen.bytes.get_or_insert(bytes);
    }
    let of_several = || whole().filter(|(target, _)| seen[*target as usize].has_others);
    let mut counts: HashMap<(u32, u32), u32, FixedState> = HashMap::default();
    for size in of_several() {
        let count = counts.entry(size).or_default();
        *count = count.saturating_add(1);
    }
    // The number of the run of equal sizes in which a size was last seen.
    let mut runs: HashMap<u32, (u32, u32), FixedState> = HashMap::default();
    let mut last_run: HashMap<(u32, u32), u32, FixedState> = HashMap::default();
    let mut returning = HashSet::default();
    for (target, bytes) in
        of_several().filter(|size| counts.get(size).is_some_and(|count| *count > 1))
    {
        let (size, run) = runs.entry(target).or_insert((bytes, 0));
        if *size != bytes {
            (*size, *run) = (bytes, *run + 1);
        }
        if last_run.insert((target, bytes), *run).is_some_and(|before| before != *run) {
            returning.insert((target, bytes));
        }
    }
    returning
}

/// Whether two sizes differ by less than 5 % of the larger one.
fn is_near(a: u64, b: u64) -> bool {
    u128::from(a.abs_diff(b)) * 20 < u128::from(a.max(b))
}

impl Resolver<'_> {
    /// The object of an access, whether it has changed, and whether the reply can become an entry.
    fn access(&mut self, access: Access, note: u8) -> Result<(u32, bool, bool), TooManyObjects> {
        let target = access.object();
        self.targets[target as usize].generation += u32::from(access.is_changed());
        let coding = Coding::ALL.get(usize::from(note & CODING_BITS)).copied().unwrap_or_default();
        let tells_size = access.fills() && note & BLOCK_LIKE == 0;
        let (number, said) = if tells_size {
            self.whole(target, access.bytes(), coding)?
        } else {
            (self.used_last(target, coding)?, Said::Nothing)
        };
        let generation = self.targets[target as usize].generation;
        self.targets[target as usize].last_used = number;
        let line = &mut self.lines[number as usize];
        let is_new = std::mem::replace(&mut line.generation, generation) != generation;
        Ok((
            number,
            matches!(said, Said::Changed) || is_new,
            access.fills() && !matches!(said, Said::Cut),
        ))
    }

    /// The line of a reply of the whole object.
    fn whole(
        &mut self,
        target: u32,
        bytes: u64,
        coding: Coding,
    ) -> Result<(u32, Said), TooManyObjects> {
        let (number, said) = self.choose(target, bytes, coding)?;
        let line = &mut self.lines[number as usize];
        if self.by_coding {
            line.coding = coding;
        }
        line.bytes_max = line.bytes_max.max(bytes);
        if !matches!(said, Said::Cut) && self.config.changes != Changes::Never {
            line.bytes = bytes;
        }
        Ok((number, said))
    }

    fn choose(
        &mut self,
        target: u32,
        bytes: u64,
        coding: Coding,
    ) -> Result<(u32, Said), TooManyObjects> {
        if self.by_coding {
            let known = self.numbers(target).find(|&number| self.is_of(number, coding));
            return match known {
                Some(number) => Ok((number, self.said(number, bytes))),
                None => Ok((self.begin(target, coding)?, Said::Nothing)),
            };
        }
        let of = |number: &u32| self.lines[*number as usize].bytes;
        if let Some(number) =
            self.numbers(target).find(|number| of(number) == bytes || of(number) == 0)
        {
            return Ok((number, Said::Nothing));
        }
        let apart = |number: &u32| of(number).abs_diff(bytes);
        let near =
            self.numbers(target).filter(|number| is_near(of(number), bytes)).min_by_key(apart);
        if let Some(number) = near {
            return Ok((number, self.said(number, bytes)));
        }
        let lines = usize::from(self.targets[target as usize].lines);
        let begins =
            lines == 0 || (lines < LINES_MAX && self.returning.contains(&(target, bytes as u32)));
        if begins {
            return Ok((self.begin(target, coding)?, Said::Nothing));
        }
        // A part of the nearest larger object; larger than all, a change of the largest.
        let larger = self.numbers(target).filter(|number| of(number) > bytes).min_by_key(apart);
        let number = larger.or_else(|| self.numbers(target).min_by_key(apart)).unwrap_or(NONE);
        Ok((number, self.said(number, bytes)))
    }

    /// What a reply of another size says of a line.
    fn said(&self, number: u32, bytes: u64) -> Said {
        let before = self.lines[number as usize].bytes;
        match self.config.changes {
            Changes::Never => Said::Nothing,
            _ if before == bytes => Said::Nothing,
            Changes::Small if bytes < before && !is_near(bytes, before) => Said::Cut,
            Changes::Small | Changes::Any if before == 0 => Said::Nothing,
            Changes::Small | Changes::Any => Said::Changed,
        }
    }

    /// The line of a reply that does not tell its object's size: that of its coding, else the one
    /// that was used last.
    fn used_last(&mut self, target: u32, coding: Coding) -> Result<u32, TooManyObjects> {
        let is_told = self.by_coding && coding > Coding::Identity;
        let told = if is_told {
            self.numbers(target).find(|&number| self.is_of(number, coding))
        } else {
            None
        };
        match (told, self.targets[target as usize].last_used) {
            (Some(number), _) => Ok(number),
            (None, NONE) => self.begin(target, coding),
            (None, number) => Ok(number),
        }
    }

    /// Whether a line is of a coding, or of one that nothing has told yet.
    fn is_of(&self, number: u32, coding: Coding) -> bool {
        let plain = |coding: Coding| coding <= Coding::Identity;
        let line = &self.lines[number as usize];
        line.coding == coding
            || (plain(line.coding) && plain(coding))
            || (line.bytes_max == 0 && line.bytes == 0)
    }

    fn begin(&mut self, target: u32, coding: Coding) -> Result<u32, TooManyObjects> {
        let number = self.lines.len() as u32;
        if number >= Access::OBJECTS_MAX {
            return Err(TooManyObjects);
        }
        let of = &mut self.targets[target as usize];
        let generation = of.generation;
        self.lines.push(Line {
            bytes: 0,
            bytes_max: 0,
            generation,
            target,
            next: of.first,
            coding,
        });
        (of.first, of.lines) = (number, of.lines.saturating_add(1));
        Ok(number)
    }

    /// The lines of a target, the newest first.
    fn numbers(&self, target: u32) -> impl Iterator<Item = u32> {
        let first = self.targets[target as usize].first;
        let some = |number: u32| (number != NONE).then_some(number);
        std::iter::successors(some(first), move |&number| some(self.lines[number as usize].next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole replies of one target by their sizes; 0: a 304. For each the object, whether it has
    /// changed and whether it fills.
    fn of(sizes: &[u64], variants: Variants) -> Vec<(u32, bool, bool)> {
        lines(sizes, &[], variants)
            .accesses
            .iter()
            .map(|access| (access.object(), access.is_changed(), access.fills()))
            .collect()
    }

    fn lines(sizes: &[u64], codings: &[Coding], variants: Variants) -> Lines {
        let access = |&bytes: &u64| Access::new(0, bytes).without_fill(bytes == 0).ending(true);
        let accesses: Vec<Access> = sizes.iter().map(access).collect();
        let notes: Vec<u8> = codings.iter().map(|coding| note_of(*coding, false)).collect();
        let all = Targets { accesses, notes: &notes, targets: 1, extents: &[] };
        resolve(all, &LoadConfig::default(), variants).unwrap()
    }

    #[test]
    fn a_script_that_is_sent_packed_and_plain_is_two_objects() {
        let sizes = [30_000, 9_000, 30_000, 9_000, 0, 9_000];
        let (plain, packed) = ((0, false, true), (1, false, true));
        assert_eq!(
            of(&sizes, Variants::Auto),
            [plain, packed, plain, packed, (1, false, false), packed]
        );
        // As one object: the packed ones are parts.
        let part = (0, false, false);
        assert_eq!(of(&sizes, Variants::None), [plain, part, plain, part, part, part]);
        // The packed one first: the plain one is a change, which never comes to rest.
        let one = of(&[9_000, 30_000, 9_000], Variants::None);
        assert_eq!(one, [(0, false, true), (0, true, true), part]);
        let counts = lines(&sizes, &[], Variants::Auto);
        assert_eq!((counts.targets, counts.requests, counts.objects), (1, 6, 2));
    }

    #[test]
    fn what_changes_or_is_cut_off_is_no_variant() {
        // Grows by a little and by much, and a client that leaves.
        assert_eq!(
            of(&[1000, 1010, 1010, 3000, 700, 3000], Variants::Auto)[1..],
            [
                (0, true, true),
                (0, false, true),
                (0, true, true),
                (0, false, false),
                (0, false, true)
            ]
        );
        // Counts its visitors: comes back to old sizes, which are near.
        assert!(
            of(&[5001, 5002, 5001, 5002], Variants::Auto)[1..]
                .iter()
                .all(|got| *got == (0, true, true))
        );
        assert_eq!(lines(&[5001, 5002, 5001, 5002], &[], Variants::Auto).targets, 0);
    }

    #[test]
    fn variants_change_each_for_itself() {
        // Both are edited: 9000 to 9100, 30000 to 30200.
        let got =
            of(&[30_000, 9_000, 30_000, 9_000, 30_200, 9_100, 30_200, 9_100], Variants::Sizes);
        let expected = [
            (0, false),
            (1, false),
            (0, false),
            (1, false),
            (0, true),
            (1, true),
            (0, false),
            (1, false),
        ];
        assert_eq!(got.iter().map(|got| (got.0, got.1)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn codings_tell_where_sizes_do_not() {
        use Coding::{Brotli, Gzip, Identity, Unknown};
        let sizes = [100, 98, 96, 100, 98, 0, 96, 80];
        let codings = [Identity, Gzip, Brotli, Unknown, Gzip, Unknown, Brotli, Brotli];
        let got = lines(&sizes, &codings, Variants::Auto);
        let objects: Vec<u32> = got.accesses.iter().map(|access| access.object()).collect();
        assert_eq!((objects, got.changed, got.partial), (vec![0, 1, 2, 0, 1, 1, 2, 2], 0, 1));
        // Sizes alone take them for changes of one.
        assert_eq!(lines(&sizes, &codings, Variants::Sizes).objects, 1);
        assert_eq!(lines(&sizes, &codings, Variants::None).objects, 1);
    }

    #[test]
    fn a_target_has_no_end_of_lines() {
        let sizes: Vec<u64> = (0..3)
            .flat_map(|_| (1..200u64).map(|size| 1000 << (size % 40)).collect::<Vec<_>>())
            .collect();
        assert_eq!(lines(&sizes, &[], Variants::Auto).objects as usize, LINES_MAX);
        // The same with sizes that differ by more than 5 % each.
        let sizes: Vec<u64> = (0..3)
            .flat_map(|_| {
                (1..100u32).map(|size| 1.1f64.powi(size as i32 + 80) as u64).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(lines(&sizes, &[], Variants::Auto).objects as usize, LINES_MAX);
    }

    #[test]
    fn a_write_makes_all_variants_out_of_date() {
        let access = |bytes: u64| Access::new(0, bytes).ending(true);
        let accesses = [
            access(300),
            access(90),
            access(300),
            access(90),
            access(300).changed(true),
            access(90),
            access(90),
        ];
        let all = Targets { accesses: accesses.to_vec(), notes: &[], targets: 1, extents: &[] };
        let got = resolve(all, &LoadConfig::default(), Variants::Auto).unwrap();
        let changed: Vec<bool> = got.accesses.iter().map(|access| access.is_changed()).collect();
        assert_eq!(changed, [false, false, false, false, true, true, false]);
    }
}
