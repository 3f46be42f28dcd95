/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Change times: whoever changes a file or a directory sets the change time of its inode, whatever
 * the file system, and since 6.13 the kernel tells of every setting. Included by witness.bpf.c.
 *
 * Why this is complete from there on. Once somebody has asked for the time, as the registrar does
 * for each file that an entry depends on, the next change sets another one, however close it
 * follows; before that, a second change within the kernel's tick may leave it alone, and settled.rs
 * says what is done about it. A program tells of a change while the kernel holds the inode's lock,
 * at the beginning; see registrar.rs for why that is enough, and settled.rs for files that the
 * server has looked at meanwhile. Where no lock is held (stores to memory, direct and asynchronous
 * writes), the file is open for writing or mapped, and no fill is granted.
 *
 * Which witness sees what is not here
 *   stores through a shared mapping          opening (sys_exit), mmap (sys_exit), writeback_dirty_folio
 *   writes that leave the times alone (XFS)  xfs.h
 *   mounts                                   sys_exit
 */
#ifndef NICACHE_TIMES_H
#define NICACHE_TIMES_H

/* Is it one of those file systems that are watched and have no witnesses of their own for most
 * changes?
 */
static __always_inline bool lacks_witnesses(struct super_block *super)
{
	unsigned long magic = super->s_magic;

	return magic == XFS_MAGIC || magic == BTRFS_MAGIC || magic == TMPFS_MAGIC;
}

/* Is the inode only being read from the disk? Nobody else can reach it until that is done. */
static __always_inline bool is_being_read(struct inode *inode)
{
	if (!bpf_core_field_exists(inode->i_state) ||
	    !bpf_core_enum_value_exists(enum inode_state_flags_t, I_NEW))
		return false;
	return inode->i_state & bpf_core_enum_value(enum inode_state_flags_t, I_NEW);
}

/* When the change time of an inode of ext4 was last set, for ext4_mark_inode_dirty_event. */
static __always_inline void note_time_set(struct inode *inode)
{
	struct inode_key key = {.dev = inode->i_sb->s_dev, .ino = inode->i_ino};
	struct seen_change seen = {.seen_ns = bpf_ktime_get_ns()};

	bpf_map_update_elem(&seen_changes, &key, &seen, BPF_ANY);
}

static __always_inline int change_time_set(struct inode *inode)
{
	if (!inode)
		return 0;
	note_attribute(inode);
	if (is_stoppable && inode->i_sb->s_magic == EXT4_MAGIC)
		note_time_set(inode);
	if (lacks_witnesses(inode->i_sb) && !is_being_read(inode)) {
		change_inode(inode);
		change_lists_if_unseen(inode);
	}
	return 0;
}

SEC("tp_btf/inode_set_ctime_to_ts")
int BPF_PROG(inode_set_ctime_to_ts, struct inode *inode)
{
	return change_time_set(inode);
}

SEC("tp_btf/ctime_ns_xchg")
int BPF_PROG(ctime_ns_xchg, struct inode *inode)
{
	return change_time_set(inode);
}

/* The time is what it was already. */
SEC("tp_btf/ctime_xchg_skip")
int BPF_PROG(ctime_xchg_skip, struct inode *inode)
{
	return change_time_set(inode);
}

#endif
