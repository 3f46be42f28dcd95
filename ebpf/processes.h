/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Which processes are the server's, and which of them are as good as those before them. Included by
 * witness.bpf.c.
 *
 * Read first: docs/coherence.md rule 4.
 *
 * A process that starts, ends or becomes another program may answer otherwise than the rest of its
 * group: it has loaded other scripts, or other settings. So it voids what the server's programs
 * have made. Servers with a pool of processes (PHP-FPM, Apache prefork) start and end such all the
 * time, as the load is; these are *twins*: children of a process that has opened no file to read
 * since it had the child before, and that answers no requests itself. What they open, or ask for
 * over the network, before their first connection is their start, and voids again, but for what the
 * C library reads when a process takes on its user. The end of a twin means nothing, unless
 * something of this kind has happened since its birth: then it is one of the old ones, and what it
 * said last may be what the others no longer say.
 *
 * One that cannot answer is a *bystander*: whoever is started by a process that has taken a
 * connection (a program that a script runs, CGI), or holds no socket at which it could accept one
 * (a shell, a job of cron in the same network). It voids nothing until it listens, or has a
 * connection; and what it does is done at the behest of the process that takes requests, if one has
 * started it.
 */
#ifndef NICACHE_PROCESSES_H
#define NICACHE_PROCESSES_H

static __always_inline bool is_server(struct task_struct *task)
{
	__u64 *server_netns = control_word(CONTROL_SERVER_NETNS);

	if (!server_netns || !*server_netns)
		return false;
	return task->nsproxy->net_ns->ns.inum == *server_netns ||
	       is_member(server_netns, task->tgid);
}

/* Is it in the server's network? */
static __always_inline bool is_inside(struct task_struct *task)
{
	__u64 *server_netns = control_word(CONTROL_SERVER_NETNS);

	return server_netns && task->nsproxy->net_ns->ns.inum == *server_netns;
}

static __always_inline bool is_service_port(__u16 port)
{
	__u64 *ports = control_word(CONTROL_SERVICE_PORTS);

	if (!ports)
		return false;
	return port == (*ports & 0xffff) || port == (*ports >> 16 & 0xffff) ||
	       port == (*ports >> 32 & 0xffff) || port == *ports >> 48;
}

struct kin {
	__u64 looked;   /* it has opened a file to read since it last had a child */
	__u64 renewals; /* how many there had been at its birth */
	/* of a bystander: the process that takes requests at whose behest it was started; 0: of
	 * none
	 */
	__u32 starter;
	__u8 has_children;
	__u8 starting; /* it has had no connection yet */
	__u8 bystander;
	__u8 of_request; /* it was started while a FastCGI request was executed */
};

/* Processes of the server that were forked or have forked. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct kin);
} kin SEC(".maps");

/* How often some process may have begun to answer otherwise. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} renewals SEC(".maps");

static __always_inline __u64 *renewals_word(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&renewals, &zero);
}

__noinline int renew(void)
{
	__u64 *count = renewals_word();

	if (count)
		__sync_fetch_and_add(count, 1);
	change_slot(SLOT_EVERYTHING);
	return 0;
}

#define IS_PATH(path, name) (!bpf_strncmp(path, sizeof(name), name))
#define BEGINS(path, name) (!bpf_strncmp(path, sizeof(name) - 1, name))

/* Which groups a user is in. `path` has room for the longest. */
static __always_inline bool is_of_the_system(const char *path)
{
	return IS_PATH(path, "/etc/group") || IS_PATH(path, "/etc/passwd") ||
	       IS_PATH(path, "/etc/nsswitch.conf") || IS_PATH(path, "/etc/ld.so.cache") ||
	       IS_PATH(path, "/proc/sys/kernel/ngroups_max") ||
	       BEGINS(path, "/lib/x86_64-linux-gnu/libnss_") ||
	       BEGINS(path, "/usr/lib/x86_64-linux-gnu/libnss_");
}

/* The calling process has opened a file to read. `path` may be none. */
static __always_inline void note_reading(const char *path)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct kin *process = bpf_map_lookup_elem(&kin, &tgid);

	if (!process)
		return;
	if (process->starting && !(path && is_of_the_system(path)))
		renew();
	if (process->has_children)
		__sync_lock_test_and_set(&process->looked, 1);
}

/* The calling process talks to another program. */
static __always_inline void note_talk(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct kin *process = bpf_map_lookup_elem(&kin, &tgid);

	if (process && process->starting)
		renew();
}

/* The calling process has a connection. */
static __always_inline void note_started(__u32 tgid)
{
	struct kin *process = bpf_map_lookup_elem(&kin, &tgid);

	if (!process)
		return;
	process->starting = 0;
	if (process->bystander) {
		process->bystander = 0;
		renew();
	}
}

/* Descriptors that are looked at. */
#define DESCRIPTORS_MAX 64
#define TCP_LISTEN 10

/* Could connections come by this descriptor of the calling process? Not static: the verifier looks
 * at it once.
 */
__noinline int is_listener(int fd)
{
	struct file *file = file_of(bpf_get_current_task_btf(), fd);
	void *socket, *sk;

	if (kind_of_file(file) != S_IFSOCK)
		return 0;
	socket = FIELD(struct file, file, private_data);
	sk = socket ? FIELD(struct socket, socket, sk) : 0;
	return sk && FIELD(struct sock, sk, __sk_common.skc_state) == TCP_LISTEN;
}

/* By any? */
__noinline int holds_listener(void)
{
	int fd;

	for (fd = 0; fd < DESCRIPTORS_MAX; fd++) {
		if (is_listener(fd))
			return 1;
	}
	return 0;
}

/* Is it one by which nobody is answered? */
static __always_inline bool is_bystander(__u32 tgid)
{
	struct kin *process = bpf_map_lookup_elem(&kin, &tgid);

	return process && process->bystander;
}

/* The server listens at one more place. */
__noinline int observe_listening(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct kin *process = bpf_map_lookup_elem(&kin, &tgid);

	if (process)
		process->bystander = 0;
	return renew();
}

/* The calling process has a child. At whose behest is that there, if it is a bystander? */
__noinline int observe_birth(__u32 parent, __u32 child, __u32 answers)
{
	struct kin *father = bpf_map_lookup_elem(&kin, &parent), fresh = {}, born = {};
	__u64 *count = renewals_word();
	bool is_twin = false;

	if (answers) {
		born.starter = parent;
		born.of_request = answers > 1;
	} else if (father && father->bystander) {
		born.starter = father->starter;
		born.of_request = father->of_request;
	}
	born.bystander = answers || (father && father->bystander) || !holds_listener();
	if (!born.bystander) {
		born.starting = 1;
		if (!father) {
			bpf_map_update_elem(&kin, &parent, &fresh, BPF_NOEXIST);
			father = bpf_map_lookup_elem(&kin, &parent);
		}
		if (father) {
			is_twin = father->has_children;
			if (__sync_lock_test_and_set(&father->looked, 0))
				is_twin = false;
			father->has_children = 1;
		}
		if (!is_twin)
			renew();
	}
	born.renewals = count ? *(volatile __u64 *)count : 0;
	/* Without room its start would go unseen. */
	if (bpf_map_update_elem(&kin, &child, &born, BPF_ANY))
		raise_stamp_for_good(SLOT_EVERYTHING);
	return born.starter;
}

__noinline int observe_death(__u32 tgid, __u32 answers)
{
	struct kin *process = bpf_map_lookup_elem(&kin, &tgid);
	__u64 *count = renewals_word();
	bool is_twin = process && !process->has_children && count &&
		       process->renewals == *(volatile __u64 *)count;

	if (process ? process->bystander : !answers && !holds_listener())
		return 0;
	if (!is_twin)
		change_slot(SLOT_EVERYTHING);
	return 0;
}

/* The calling process has become another program. Is that done at the behest of one that takes
 * requests?
 */
__noinline int observe_replaced(__u32 tgid, __u32 answers)
{
	struct kin *process = bpf_map_lookup_elem(&kin, &tgid), born = {.bystander = 1};
	/* The programs that PHP's scripts run get PHP-FPM's own such socket. */
	bool may_answer = !(process && process->of_request) && holds_listener();

	if (!may_answer && process && process->bystander)
		return process->starter != 0;
	bpf_map_delete_elem(&kin, &tgid);
	/* It has come from another network. */
	if (!may_answer && !process && !answers &&
	    !bpf_map_update_elem(&kin, &tgid, &born, BPF_ANY))
		return 0;
	renew();
	return 0;
}

#endif
