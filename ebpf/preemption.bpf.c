/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Does the kernel stop in the middle of its own work? It keeps that in a variable that no file
 * shows: the boot parameter preempt=, or the configuration's default. Loaded by
 * truth/kernel/src/preemption.rs, and run once.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Every kernel has it. Who may not see addresses (CAP_SYSLOG) sees none of it, either. */
extern const void _stext __ksym __weak;
/* With CONFIG_PREEMPT_DYNAMIC: 0 none, 1 voluntary, 2 full, 3 lazy. */
extern const void preempt_dynamic_mode __ksym __weak;
/* With CONFIG_PREEMPTION. */
extern const void preempt_schedule __ksym __weak;

#define PREEMPT_VOLUNTARY 1

/* 1: no. 0: yes, or who knows. */
SEC("syscall")
int is_unpreempted(void *context)
{
	unsigned int mode;

	if (!&_stext)
		return 0;
	if (!&preempt_dynamic_mode)
		return !&preempt_schedule;
	if (bpf_probe_read_kernel(&mode, sizeof(mode), &preempt_dynamic_mode))
		return 0;
	return mode <= PREEMPT_VOLUNTARY;
}
