/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Programs outside the server's network that are the server's all the same: PHP-FPM as a service of
 * the machine. Included by witness.bpf.c.
 *
 * Read first: truth/watch/src/witnesses/members.rs.
 *
 * A program is a *member* from its exec on, by its command in a certain network or by the unit
 * whose control group it is in; and so are those that it starts. Who runs already has memory that
 * nobody has seen it fill, and is not a member; nor is one that has children at its exec, because
 * they may answer in its name.
 */
#ifndef NICACHE_MEMBERS_H
#define NICACHE_MEMBERS_H

#define MEMBER_NAME_BYTES 120
/* A unit's programs may be in control groups below its own, this many levels deep. */
#define UNIT_LEVELS 6

struct member_name {
	__u32 kind;
	__u32 netns; /* of a command: the network in which it is one */
	char name[MEMBER_NAME_BYTES];
};

/* The commands and units that are. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, struct member_name);
	__type(value, __u32);
} member_names SEC(".maps");

/* By process. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} members SEC(".maps");

/* `server_netns` is that word of the control page. */
static __always_inline bool is_member(__u64 *server_netns, __u32 tgid)
{
	__u64 present = server_netns[CONTROL_MEMBERS - CONTROL_SERVER_NETNS];

	return present >> (tgid & 63) & 1 && bpf_map_lookup_elem(&members, &tgid);
}

__noinline int add_member(__u32 tgid)
{
	__u64 *present = control_word(CONTROL_MEMBERS);
	__u32 one = 1;

	/* Without room for it, what it looks at goes unseen. */
	if (!present || bpf_map_update_elem(&members, &tgid, &one, BPF_ANY))
		raise_stamp_for_good(SLOT_EVERYTHING);
	else
		__sync_fetch_and_or(present, 1ULL << (tgid & 63));
	return 0;
}

/* The calling process has become another program. Is it a member by its name? */
__noinline int has_member_name(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct member_name key = {.kind = MEMBER_COMMAND, .netns = task->nsproxy->net_ns->ns.inum};
	struct cgroup *group;
	int level;

	bpf_probe_read_kernel_str(key.name, sizeof(task->comm), task->comm);
	if (bpf_map_lookup_elem(&member_names, &key))
		return 1;
	if (!bpf_core_field_exists(task->cgroups))
		return 0;
	group = BPF_CORE_READ(task, cgroups, dfl_cgrp);
	for (level = 0; level < UNIT_LEVELS && group; level++) {
		__builtin_memset(&key, 0, sizeof(key));
		key.kind = MEMBER_UNIT;
		if (bpf_probe_read_kernel_str(key.name, sizeof(key.name),
					      BPF_CORE_READ(group, kn, name)) < 0)
			return 0;
		if (bpf_map_lookup_elem(&member_names, &key))
			return 1;
		group = BPF_CORE_READ(group, self.parent, cgroup);
	}
	return 0;
}

static __always_inline bool has_children(struct task_struct *task)
{
	__u64 first = (__u64)BPF_CORE_READ(task, children.next);

	return first != (__u64)task + bpf_core_field_offset(struct task_struct, children);
}

#endif
