/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Does the kernel stop in the middle of its own work? It keeps that in a variable that no file
 * shows: the boot parameter preempt=, or the configuration's default. And if it does, also in the
 * middle of a program at a tracepoint? Until Linux 6.19 it did not. Loaded by
 * truth/kernel/src/preemption.rs, and run once.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#ifndef bool
#define bool _Bool
#define true 1
#define false 0
#endif

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Addresses in the kernel, 0 where it has none of that name or does not show it. In the order of
 * truth/kernel/src/preemption.rs.
 */
SEC(".rodata.addresses")
const volatile struct {
	/* Every kernel has it. Who may not see addresses (CAP_SYSLOG) sees none of it, either. */
	__u64 stext;
	/* With CONFIG_PREEMPT_DYNAMIC: 0 none, 1 voluntary, 2 full, 3 lazy. */
	__u64 preempt_dynamic_mode;
	/* With CONFIG_PREEMPTION. */
	__u64 preempt_schedule;
	/* By processor, what has to be added to the address of a variable that each has for
	 * itself. Kernels without CONFIG_KALLSYMS_ALL show neither of these two.
	 */
	__u64 per_cpu_offset;
	/* How often it was told not to stop its task; until 6.1, and again since 6.15. */
	__u64 preempt_count;
} addresses = {};

#define PREEMPT_VOLUNTARY 1

/* 1: no. 0: yes, or who knows. */
SEC("syscall")
int is_unpreempted(void *context)
{
	unsigned int mode;

	if (!addresses.stext)
		return 0;
	if (!addresses.preempt_dynamic_mode)
		return !addresses.preempt_schedule;
	if (bpf_probe_read_kernel(&mode, sizeof(mode),
				  (const void *)addresses.preempt_dynamic_mode))
		return 0;
	return mode <= PREEMPT_VOLUNTARY;
}

#define PREEMPT_MASK 0xff

/* What is looked at, and by whom: the process is to put its number there. */
struct looked {
	__u32 tgid;
	__u32 runs[2];    /* at system calls, at other tracepoints */
	__u32 stoppable[2]; /* of these */
	__u32 unknown;      /* and of these it cannot be seen */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct looked);
} looks SEC(".maps");

#define UNKNOWN (-1)

static __always_inline int may_be_stopped(void)
{
	__u64 offset, place;
	__u32 count;

	if (!addresses.per_cpu_offset || !addresses.preempt_count)
		return UNKNOWN;
	place = addresses.per_cpu_offset + bpf_get_smp_processor_id() * sizeof(offset);
	if (bpf_probe_read_kernel(&offset, sizeof(offset), (const void *)place))
		return UNKNOWN;
	if (bpf_probe_read_kernel(&count, sizeof(count),
				  (const void *)(addresses.preempt_count + offset)))
		return UNKNOWN;
	return !(count & PREEMPT_MASK);
}

static __always_inline int look(__u32 kind)
{
	__u32 zero = 0;
	struct looked *looked = bpf_map_lookup_elem(&looks, &zero);
	int stoppable;

	if (!looked || looked->tgid != bpf_get_current_pid_tgid() >> 32)
		return 0;
	__sync_fetch_and_add(&looked->runs[kind], 1);
	stoppable = may_be_stopped();
	if (stoppable == UNKNOWN)
		__sync_fetch_and_add(&looked->unknown, 1);
	else if (stoppable)
		__sync_fetch_and_add(&looked->stoppable[kind], 1);
	return 0;
}

SEC("tp_btf/sys_enter")
int at_call(void *context)
{
	return look(0);
}

SEC("tp_btf/sched_process_fork")
int at_fork(void *context)
{
	return look(1);
}
