/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Extended attributes that are set or removed by a path, where system calls are seen at their end
 * (sys_exit): of which inode it was, nothing says then. Included by witness.bpf.c.
 *
 * Every file system that is watched sets the inode's change time within such a call, if it changes
 * anything. Where the kernel tells of change times (times.h), the inodes are noted for the thread,
 * and at the end of the call their lists have changed. If none was noted, nothing has: cp and tar
 * set lists that say what the mode says already, and systemd leaves notes on
 * control groups.
 *
 * Deliberately absent: 32-bit calls. They change everything.
 */
#ifndef NICACHE_ATTRIBUTES_H
#define NICACHE_ATTRIBUTES_H

/* Inodes of one call; what sets more, as a copy into an overlay's upper layer does, changes
 * everything.
 */
#define ATTRIBUTES_MAX 4

struct attribute_inode {
	__u32 slot;
	bool is_directory;
};

struct attribute_call {
	__u32 inodes;
	/* Of stacked file systems, and of others: those below. */
	bool is_stacked;
	bool is_plain;
	struct attribute_inode inode[ATTRIBUTES_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct attribute_call);
} attribute_calls SEC(".maps");

/* The kernel has told of a change time; and there was no memory to note one. */
bool tells_change_times;
bool attributes_lost;

static __always_inline bool sets_attribute_by_path(__u64 nr)
{
	return nr == NR_setxattr || nr == NR_lsetxattr || nr == NR_removexattr ||
	       nr == NR_lremovexattr || nr == NR_setxattrat || nr == NR_removexattrat;
}

__noinline int note_attribute_of(__u32 slot, bool is_directory, bool is_stacked)
{
	struct attribute_call *call = bpf_task_storage_get(
		&attribute_calls, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u32 at;

	if (!call) {
		attributes_lost = true;
		return 0;
	}
	at = call->inodes;
	call->inodes = at + 1;
	if (is_stacked)
		call->is_stacked = true;
	else
		call->is_plain = true;
	if (at < ATTRIBUTES_MAX) {
		call->inode[at].slot = slot;
		call->inode[at].is_directory = is_directory;
	}
	return 0;
}

/* The change time of an inode is set. */
static __always_inline void note_attribute(struct inode *inode)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs;

	if (!tells_change_times)
		tells_change_times = true;
	if (task->flags & (PF_KTHREAD | PF_IO_WORKER) || task->thread_info.status & TS_COMPAT)
		return;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	if (sets_attribute_by_path(regs->orig_ax & ~X32_BIT))
		note_attribute_of(slot_of(device_of(inode), inode->i_ino),
				  (inode->i_mode & S_IFMT) == S_IFDIR,
				  inode->i_sb->s_stack_depth > 0);
}

/* Such a call is over. Its attribute's name is not looked at: another thread may have changed it.
 */
__noinline int change_attributes(bool has_succeeded)
{
	struct attribute_call *call =
		bpf_task_storage_get(&attribute_calls, bpf_get_current_task_btf(), 0, 0);
	__u32 inodes = call && has_succeeded ? call->inodes : 0;
	bool is_incomplete = !tells_change_times || attributes_lost || may_have_missed_times() ||
			     inodes > ATTRIBUTES_MAX ||
			     (call && call->is_stacked && !call->is_plain);

	if (has_succeeded && is_incomplete) {
		change_slot(SLOT_EVERYTHING);
		inodes = 0;
	}
	if (call) {
		for (__u32 at = 0; at < ATTRIBUTES_MAX; at++)
			if (at < inodes)
				change_lists(call->inode[at].slot,
					     call->inode[at].is_directory, false);
		call->inodes = 0;
		call->is_stacked = call->is_plain = false;
	}
	return 0;
}

#endif
