/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Witnesses for kernels that stop tasks in the middle of programs at tracepoints (Linux 7.3). These
 * hang on the same tracepoints as events of perf, in whose programs no task is stopped. They are
 * given a record of the event in the place of the kernel's structures, and what these would say is
 * taken from the calling task or done without. Included by witness.bpf.c.
 *
 * Deliberately absent, because a record says too little: dirty pages (it does not name the file
 * system), change times (on Btrfs, not the subvolume), XFS, io_uring and jbd2. And direct writes,
 * which may end in an interrupt: of programs on events the kernel runs one at a time on each
 * processor, so theirs would be passed over if a task is in another one. All these stay at their
 * tracepoints, and do nothing but raise stamps; gaps.h looks after them.
 */
#ifndef NICACHE_EVENTS_H
#define NICACHE_EVENTS_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct trace_event_raw_sys_exit {
	long ret;
};

struct trace_event_raw_sched_process_fork {
	int child_pid;
};

struct trace_event_raw_sched_prepare_exec {
	__u32 __data_loc_filename;
	__u32 __data_loc_interp;
};

/* What the records of ext4 have in common. */
struct trace_event_raw_ext4__write_end {
	__u32 dev;
	unsigned long ino;
};

struct trace_event_raw_ext4__truncate {
	__u32 dev;
	unsigned long ino;
};

struct trace_event_raw_ext4_fallocate_exit {
	__u32 dev;
	unsigned long ino;
};

struct trace_event_raw_ext4_unlink_exit {
	__u32 dev;
	unsigned long ino;
};

struct trace_event_raw_ext4_mark_inode_dirty {
	__u32 dev;
	unsigned long ino;
};

#pragma clang attribute pop

SEC("tp/raw_syscalls/sys_exit")
int sys_exit_event(struct trace_event_raw_sys_exit *event)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return observe_exit(task, (struct pt_regs *)bpf_task_pt_regs(task), event->ret);
}

extern struct task_struct *bpf_task_from_pid(int pid) __weak __ksym;
extern void bpf_task_release(struct task_struct *task) __weak __ksym;

/* Is it a thread, which is none of our business? */
static __always_inline bool is_thread(int pid)
{
	struct task_struct *task;
	bool is_thread;

	if (!bpf_ksym_exists(bpf_task_from_pid) || !bpf_ksym_exists(bpf_task_release))
		return false;
	task = bpf_task_from_pid(pid);
	if (!task)
		return false;
	is_thread = task->tgid != task->pid;
	bpf_task_release(task);
	return is_thread;
}

SEC("tp/sched/sched_process_fork")
int sched_process_fork_event(struct trace_event_raw_sched_process_fork *event)
{
	int child = event->child_pid;

	return is_thread(child) ? 0 : observe_fork(bpf_get_current_task_btf(), child);
}

/* A text that belongs to a record: how far behind its beginning it is, in the lower half. */
static __always_inline void report_text(void *event, __u32 where)
{
	__u64 record;

	/* As a number: where it lies is not known beforehand. */
	bpf_probe_read_kernel(&record, sizeof(record), &event);
	report_executed(record + (where & 0xffff));
}

/* The calling process is about to run another program, if nothing goes wrong: only here both are
 * told, the program and what runs it.
 */
SEC("tp/sched/sched_prepare_exec")
int sched_prepare_exec_event(struct trace_event_raw_sched_prepare_exec *event)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 tgid = task->tgid;
	struct kin *process;

	if (!is_server(task))
		return 0;
	process = bpf_map_lookup_elem(&kin, &tgid);
	if (!process || !process->bystander || !process->starter)
		return 0;
	report_text(event, event->__data_loc_filename);
	report_text(event, event->__data_loc_interp);
	return 0;
}

SEC("tp/sched/sched_process_exec")
int sched_process_exec_event(void *event)
{
	observe_exec(bpf_get_current_task_btf());
	return 0;
}

SEC("tp/sched/sched_process_exit")
int sched_process_exit_event(void *event)
{
	return observe_end(bpf_get_current_task_btf());
}

#define CHANGES_INODE_BY(name, record)                                 \
	SEC("tp/ext4/" #name)                                          \
	int name##_event(struct trace_event_raw_##record *event)       \
	{                                                              \
		change_slot(slot_of(event->dev, event->ino));          \
		return 0;                                              \
	}

CHANGES_INODE_BY(ext4_da_write_end, ext4__write_end)
CHANGES_INODE_BY(ext4_write_end, ext4__write_end)
CHANGES_INODE_BY(ext4_journalled_write_end, ext4__write_end)
CHANGES_INODE_BY(ext4_truncate_exit, ext4__truncate)
CHANGES_INODE_BY(ext4_fallocate_exit, ext4_fallocate_exit)
CHANGES_INODE_BY(ext4_unlink_exit, ext4_unlink_exit)

/* Was the change time of this inode last set longer ago than an operation takes
 * (changed_just_now)? It is not known of one whose setting may have gone unseen.
 */
static __always_inline bool changed_long_ago(__u32 dev, __u64 ino)
{
	struct inode_key key = {.dev = dev, .ino = ino};
	struct seen_change *known = bpf_map_lookup_elem(&seen_changes, &key);

	return known && !may_have_missed_times() &&
	       bpf_ktime_get_ns() - known->seen_ns >= SETTLED_NS;
}

SEC("tp/ext4/ext4_mark_inode_dirty")
int ext4_mark_inode_dirty_event(struct trace_event_raw_ext4_mark_inode_dirty *event)
{
	if (!only_reads() && !changed_long_ago(event->dev, event->ino))
		change_slot(slot_of(event->dev, event->ino));
	return 0;
}

#endif
