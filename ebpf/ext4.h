/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * The witnesses of ext4. Included by witness.bpf.c, which says what each of them sees. From 6.12 on
 * the verifier takes the arguments of a module's tracepoints for pointers that may be null.
 */
#ifndef NICACHE_EXT4_H
#define NICACHE_EXT4_H

#define CHANGES_INODE(name)                     \
	SEC("tp_btf/" #name)                    \
	int BPF_PROG(name, struct inode *inode) \
	{                                       \
		if (inode)                      \
			change_inode(inode);    \
		return 0;                       \
	}

CHANGES_INODE(ext4_da_write_end)
CHANGES_INODE(ext4_write_end)
CHANGES_INODE(ext4_journalled_write_end)
CHANGES_INODE(ext4_truncate_exit)
CHANGES_INODE(ext4_fallocate_exit)

SEC("tp_btf/ext4_unlink_exit")
int BPF_PROG(ext4_unlink_exit, struct dentry *dentry)
{
	struct inode *inode = dentry ? dentry->d_inode : 0;

	if (inode)
		change_inode(inode);
	return 0;
}

/* Change times of inodes that changed within the last minute, and when each was first seen. */
struct seen_change {
	struct change_time changed;
	__u64 seen_ns;
};

#define SETTLED_NS 2000000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct inode_key);
	__type(value, struct seen_change);
} seen_changes SEC(".maps");

/* Could the inode's change time have been set by the operation that is under way?
 *
 * Every operation for which ext4_mark_inode_dirty is the only witness (directory entries, mode,
 * owner, times) sets the change time to the present. One that leaves it alone only moves the access
 * time (see only_reads, too) or allocates blocks for data that were witnessed when written.
 *
 * So the change time must be new, in two senses. It lies within a minute of the clock; the change
 * time is in UTC and the clock in TAI, which is 37 s ahead at most, hence the width. And it was not
 * seen here SETTLED_NS ago already; that is much longer than an operation takes from setting it to
 * marking the inode. A step of the clock is followed by a change of everything (settimeofday,
 * clock_settime).
 */
static __always_inline bool changed_just_now(struct inode *inode)
{
	struct inode_key key = {};
	struct seen_change new = {}, *known;
	__s64 age_s;

	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_ktime_get_tai_ns))
		return true;
	if (!change_time_of(inode, &new.changed))
		return true;
	age_s = (__s64)(bpf_ktime_get_tai_ns() / 1000000000) - new.changed.sec;
	if (age_s <= -60 || age_s >= 60)
		return false;
	new.seen_ns = bpf_ktime_get_ns();
	key.dev = inode->i_sb->s_dev;
	key.ino = inode->i_ino;
	known = bpf_map_lookup_elem(&seen_changes, &key);
	if (known && known->changed.sec == new.changed.sec &&
	    known->changed.nsec == new.changed.nsec)
		return new.seen_ns - known->seen_ns < SETTLED_NS;
	bpf_map_update_elem(&seen_changes, &key, &new, BPF_ANY);
	return true;
}

/* Calls that change nothing of a file but its access time; otherwise the server's own first read of
 * a file would void the fill that it belongs to. Where they store through a mapping of another
 * file, that one is open for writing.
 */
const volatile __u64 reading[NR_MAX / 64] = {
	[0] = 1ULL << NR_read | 1ULL << NR_mmap | 1ULL << NR_pread64 | 1ULL << NR_readv |
	      1ULL << NR_execve,
	[1] = 1ULL << (NR_getdents & 63) | 1ULL << (NR_readlink & 63),
	[3] = 1ULL << (NR_getdents64 & 63),
	[4] = 1ULL << (NR_readlinkat & 63) | 1ULL << (NR_preadv & 63),
	[5] = 1ULL << (NR_preadv2 & 63) | 1ULL << (NR_execveat & 63),
};

/* Is it certain that the current thread only reads? Threads of the kernel have no call that would
 * say so, and who is killed in a call may leave a file behind.
 */
static __always_inline bool only_reads(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 nr;

	if (task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_EXITING | PF_DUMPCORE) ||
	    task->thread_info.status & TS_COMPAT)
		return false;
	nr = ((struct pt_regs *)bpf_task_pt_regs(task))->orig_ax & ~X32_BIT;
	return nr < NR_MAX && reading[nr / 64] >> (nr & 63) & 1;
}

SEC("tp_btf/ext4_mark_inode_dirty")
int BPF_PROG(ext4_mark_inode_dirty, struct inode *inode)
{
	if (inode && !only_reads() && changed_just_now(inode))
		change_inode(inode);
	return 0;
}

SEC("tp_btf/writeback_dirty_folio")
int BPF_PROG(writeback_dirty_folio, struct folio *folio, struct address_space *mapping)
{
	struct inode *inode = mapping ? mapping->host : 0;

	if (inode)
		change_inode(inode);
	return 0;
}

/* Reads end here, too; a file that is not open for writing has not been written. */
static __always_inline void change_if_written(struct kiocb *iocb)
{
	struct file *file = iocb ? iocb->ki_filp : 0;

	if (file && file->f_mode & FMODE_WRITE)
		change_inode(file->f_inode);
}

SEC("tp_btf/iomap_dio_complete")
int BPF_PROG(iomap_dio_complete, struct kiocb *iocb)
{
	change_if_written(iocb);
	return 0;
}

/* Where there is no tracepoint (before 6.6). The bytes are on the device; pages of before go within
 * the call, and the file stays open for writing until it returns.
 */
SEC("fentry/iomap_dio_complete")
int BPF_PROG(iomap_dio_complete_entry, struct iomap_dio *dio)
{
	change_if_written(dio->iocb);
	return 0;
}

#endif
