/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Witnesses that are stopped in the middle. Included by witness.bpf.c.
 *
 * The kernel guards a program against itself: while a task is in it, it is passed over for whoever
 * comes to it on the same processor. Where tasks are stopped in the middle of such programs (Linux
 * 7.3), that is a *gap*: from the moment at which the task is stopped until it goes on, others on
 * that processor change something and no witness tells of it. A gap begins and ends with a switch
 * of tasks, which cannot be stopped itself; so the program here sees each. While one is open
 * nothing is vouched for, and when it ends, everything has changed
 * (RevisionTable::unseen_until).
 *
 * How a gap is told. The kernel counts for each program and processor who is in it (`active`). If
 * that is more than the tasks that are known to be stopped in there, the one that is being stopped
 * is one more. Whoever is stopped in there goes on on the same processor.
 *
 * What a witness has in memory besides stamps is not complete after it was passed over: then the
 * watcher ends (truth/watch/src/witnesses/overseer.rs). Those that have much of it hang on events
 * of perf, in which no task is stopped; the kernel guards all of those by one count, which is also
 * raised while somebody reads or changes a map by bpf(2). It is the last of the guards here.
 */
#ifndef NICACHE_GAPS_H
#define NICACHE_GAPS_H

#define GUARDS_MAX 64
/* Tasks that are stopped in a witness on one processor. */
#define STOPPED_MAX 16

struct bpf_prog {
	void *active;
} __attribute__((preserve_access_index));

struct bpf_array {
	void *pptrs[0];
} __attribute__((preserve_access_index));

/* The programs that are guarded, as addresses that a processor adds its own offset to; and such an
 * address of what this_processor() returns.
 */
struct guards {
	__u32 count;
	__u32 zero;
	__u64 active[GUARDS_MAX];
	__u64 processor;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct guards);
} guards SEC(".maps");

struct stopped_task {
	__u64 in; /* bit n: in the program of guard n; 0: nobody */
	__u32 pid;
};

/* Of one processor. */
struct processor_gaps {
	__u32 open;
	__u32 known[GUARDS_MAX]; /* tasks that are stopped in it */
	struct stopped_task stopped[STOPPED_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct processor_gaps);
} processor_gaps SEC(".maps");

static __always_inline struct processor_gaps *this_processor(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&processor_gaps, &zero);
}

/* What is to be guarded: the descriptors of programs, and of the map above. `events` is the address
 * of what counts programs on events of perf and changes of maps (`bpf_prog_active`); 0: the kernel
 * does not show it.
 */
struct guarded {
	__u64 events;
	__s32 map;
	__u32 count;
	__s32 programs[GUARDS_MAX - 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct guarded);
} guarded_programs SEC(".maps");

#define GUARDED 0
#define UNGUARDED 1
#define EVENTS_UNGUARDED 2

/* Run once, before the programs are attached. */
SEC("syscall")
int guard_programs(void *context)
{
	__u32 zero = 0, at;
	struct guards *all = bpf_map_lookup_elem(&guards, &zero);
	struct guarded *guarded = bpf_map_lookup_elem(&guarded_programs, &zero);
	struct task_struct *task = bpf_get_current_task_btf();
	struct file *file;
	void *object;

	if (!all || !guarded)
		return UNGUARDED;
	file = file_of(task, guarded->map);
	object = file ? FIELD(struct file, file, private_data) : 0;
	if (!object)
		return UNGUARDED;
	all->processor = (__u64)FIELD(
		struct hlist_head, object + bpf_core_field_offset(struct bpf_array, pptrs), first);
	for (at = 0; at < GUARDS_MAX - 1; at++) {
		if (at >= guarded->count)
			break;
		file = file_of(task, guarded->programs[at]);
		object = file ? FIELD(struct file, file, private_data) : 0;
		all->active[at] = object ? (__u64)FIELD(struct bpf_prog, object, active) : 0;
		if (!all->active[at])
			return UNGUARDED;
	}
	if (at != guarded->count)
		return UNGUARDED;
	all->active[GUARDS_MAX - 1] = guarded->events;
	all->count = at;
	return all->active[GUARDS_MAX - 1] ? GUARDED : EVENTS_UNGUARDED;
}

/* How many are in what a guard guards, on this processor; too many if it cannot be known. */
static __always_inline __u32 tasks_in(__u64 active, __u64 offset)
{
	__u32 count;

	if (bpf_probe_read_kernel(&count, sizeof(count), (const void *)(active + offset)))
		return ~0;
	return count;
}

/* From here on who looks at the table takes everything for changed; and who has looked does so
 * again.
 */
static __always_inline void begin_gap(void)
{
	__u64 *open = control_word(CONTROL_GAPS), *begun = control_word(CONTROL_GAPS_BEGUN);
	__u64 *epoch = control_word(CONTROL_EPOCH);

	if (!open || !begun || !epoch)
		return;
	last_gap_ns = attribute_asked_ns = bpf_ktime_get_ns();
	__sync_fetch_and_add(begun, 1);
	__sync_fetch_and_add(open, 1);
	__sync_fetch_and_add(epoch, 1);
}

/* Raises the stamp of gaps to the clock before the gap counts as closed. */
static __always_inline void end_gap(void)
{
	__u64 *open = control_word(CONTROL_GAPS), *stamp = control_word(CONTROL_GAPS_STAMP);
	__u64 *clock_word = control_word(CONTROL_CLOCK);
	__u64 known, clock;
	int tries;

	if (!open || !stamp || !clock_word)
		return;
	last_gap_ns = attribute_asked_ns = bpf_ktime_get_ns();
	clock = *(volatile __u64 *)clock_word & STAMP_MASK;
	for (tries = 0; tries < 64; tries++) {
		known = *(volatile __u64 *)stamp;
		if (known >= clock || __sync_val_compare_and_swap(stamp, known, clock) == known)
			break;
	}
	/* Beaten 64 times in a row: nothing is kept any longer, which is safe. */
	if (tries == 64)
		__sync_fetch_and_or(stamp, STAMP_MASK);
	__sync_fetch_and_add(open, -1);
}

/* What is done for each guard. */
struct turn {
	__u64 offset;
	__u64 in;
};

static long note_guard(__u32 at, struct turn *turn)
{
	__u32 zero = 0;
	struct guards *all = bpf_map_lookup_elem(&guards, &zero);
	struct processor_gaps *here = this_processor();

	if (!all || !here || at >= GUARDS_MAX)
		return 1;
	if (!all->active[at] || tasks_in(all->active[at], turn->offset) <= here->known[at])
		return 0;
	here->known[at]++;
	turn->in |= 1ULL << at;
	return 0;
}

static long forget_guard(__u32 at, struct turn *turn)
{
	struct processor_gaps *here = this_processor();

	if (!here || at >= GUARDS_MAX)
		return 1;
	if (turn->in >> at & 1)
		here->known[at]--;
	return 0;
}

/* Is the task that is being stopped in a witness? */
__noinline int note_stopped(int pid)
{
	__u32 zero = 0, at;
	struct guards *all = bpf_map_lookup_elem(&guards, &zero);
	struct processor_gaps *here = this_processor();
	struct turn turn = {};

	if (!all || !here)
		return 0;
	/* As a number: nothing may be taken from a pointer to a map. */
	bpf_probe_read_kernel(&turn.offset, sizeof(turn.offset), &here);
	turn.offset -= all->processor;
	bpf_loop(GUARDS_MAX, note_guard, &turn, 0);
	if (!turn.in)
		return 0;
	here->open++;
	begin_gap();
	for (at = 0; at < STOPPED_MAX; at++) {
		if (!here->stopped[at].in) {
			here->stopped[at].in = turn.in;
			here->stopped[at].pid = pid;
			return 0;
		}
	}
	/* No room: this gap never ends. */
	return 0;
}

/* Does the task that goes on end a gap? */
__noinline int note_going_on(int pid)
{
	struct processor_gaps *here = this_processor();
	struct turn turn = {};
	__u32 at;

	if (!here)
		return 0;
	for (at = 0; at < STOPPED_MAX; at++) {
		if (here->stopped[at].in && here->stopped[at].pid == (__u32)pid) {
			turn.in = here->stopped[at].in;
			here->stopped[at].in = 0;
			break;
		}
	}
	if (!turn.in)
		return 0;
	bpf_loop(GUARDS_MAX, forget_guard, &turn, 0);
	here->open--;
	end_gap();
	return 0;
}

/* `stops`: the task that leaves the processor has not asked for it. */
SEC("tp_btf/sched_switch")
int see_gaps(__u64 *context)
{
	bool stops = context[0];
	struct task_struct *leaves = (struct task_struct *)context[1];
	struct task_struct *comes = (struct task_struct *)context[2];
	struct processor_gaps *here = this_processor();

	if (stops)
		note_stopped(leaves->pid);
	if (here && here->open)
		note_going_on(comes->pid);
	return 0;
}

#endif
