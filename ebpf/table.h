/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * The revision table, as truth/coherence/src/table.rs has it (and says why no lock is needed).
 * Included by witness.bpf.c.
 */
#ifndef NICACHE_TABLE_H
#define NICACHE_TABLE_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, CONTROL_BYTES);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SOURCE_SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} revisions SEC(".maps");

/* The kernel stops tasks in the middle of programs at tracepoints (gaps.h). */
const volatile __u32 is_stoppable SEC(".rodata.gaps") = 0;
/* When one was last stopped, or went on; 0: never. */
__u64 last_gap_ns;

/* What is under way may have begun so long ago. */
#define CALL_NS 10000000000ULL

/* Was perhaps a setting of a change time passed over that belongs to what is under way? */
static __always_inline bool may_have_missed_times(void)
{
	return last_gap_ns && bpf_ktime_get_ns() - last_gap_ns < CALL_NS;
}

static __always_inline __u64 *control_word(int word)
{
	__u32 zero = 0;
	__u64 *page = bpf_map_lookup_elem(&control, &zero);

	return page ? page + word : 0;
}

/* A TCP socket listens, in whatever network: what is known of who does is no longer all
 * (truth/watch/src/attribution/listeners.rs).
 */
static __always_inline void note_listening(void)
{
	__u64 *listened_ns = control_word(CONTROL_LISTENED_NS);

	if (listened_ns && *(volatile __u64 *)listened_ns != LISTENED_UNTOLD)
		*(volatile __u64 *)listened_ns = bpf_ktime_get_ns();
}

/* One will, at any time. */
static __always_inline void expect_listening(void)
{
	__u64 *listened_ns = control_word(CONTROL_LISTENED_NS);

	if (listened_ns)
		*(volatile __u64 *)listened_ns = LISTENED_UNTOLD;
}

/* Same function as SourceSlot::of_inode. */
static __always_inline __u32 slot_of(__u32 dev, __u64 ino)
{
	__u64 mixed = ino + (__u64)dev * 0xff51afd7ed558ccdULL;
	__u32 slot;

	mixed ^= mixed >> 32;
	slot = (mixed * 0x9e3779b97f4a7c15ULL) >> (64 - SLOT_BITS);
	return slot < SLOTS_RESERVED ? slot + SLOTS_RESERVED : slot;
}

/* Raises the slot's stamp to the clock, and returns the word with the flags that it has. The clock
 * is read once more when the stamp is there: see RevisionTable::record_change.
 */
__noinline __u64 raise_stamp(__u32 slot)
{
	__u64 *clock_word = control_word(CONTROL_CLOCK);
	__u64 *revision = bpf_map_lookup_elem(&revisions, &slot);
	__u64 clock, word, raised, seen;
	int tries;

	if (!clock_word || !revision)
		return 0;
	word = *(volatile __u64 *)revision;
	for (tries = 0; tries < 64; tries++) {
		clock = *(volatile __u64 *)clock_word & STAMP_MASK;
		if ((word & STAMP_MASK) >= clock)
			return word;
		raised = (word & ~STAMP_MASK) | clock;
		seen = __sync_val_compare_and_swap(revision, word, raised);
		word = seen == word ? raised : seen;
	}
	/* Beaten 64 times in a row. The largest stamp makes the slot uncacheable for good, which is
	 * safe.
	 */
	__sync_fetch_and_or(revision, STAMP_MASK);
	return WATCHED | TRACKED;
}

/* Raises the slot's stamp to the clock, and that of all dynamic entries if one depends on it; moves
 * the epoch if the slot is watched.
 */
static __always_inline void change_slot(__u32 slot)
{
	__u64 *epoch = control_word(CONTROL_EPOCH);
	__u64 word = raise_stamp(slot);

	if (word & TRACKED)
		raise_stamp(SLOT_DYNAMIC);
	if (word & WATCHED && epoch)
		__sync_fetch_and_add(epoch, 1);
}

/* Who may do what with an inode is not only in its mode: its list has changed, too. Entries below a
 * directory are not to be reinstated then. What never depended on it is looked up after this, or is
 * not kept, because the stamp of the directory is later than the request. On a stacked file system
 * entries depend on the directories below.
 */
static __always_inline void change_lists(__u32 slot, bool is_directory, bool is_stacked)
{
	__u64 word = raise_stamp(slot);

	if (is_directory && (is_stacked || word & (WATCHED | TRACKED)))
		change_slot(SLOT_EVERYTHING);
	else
		change_slot(slot);
	change_slot(SLOT_ACCESS_LISTS);
}

/* Nothing that depends on the slot is cacheable from here on. */
static __always_inline void raise_stamp_for_good(__u32 slot)
{
	__u64 *revision = bpf_map_lookup_elem(&revisions, &slot);

	if (revision)
		__sync_fetch_and_or(revision, STAMP_MASK);
}

static __always_inline void change_inode(struct inode *inode)
{
	change_slot(slot_of(device_of(inode), inode->i_ino));
}

#endif
