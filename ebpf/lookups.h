/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * The ring, and what is told of paths and descriptors that the server uses
 * (truth/watch/src/witnesses/event.rs). Included by witness.bpf.c.
 */
#ifndef NICACHE_LOOKUPS_H
#define NICACHE_LOOKUPS_H

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} lookups SEC(".maps");

/* Files that the server has opened to read when there was no room in the ring to tell. */
struct untold_file {
	__u64 clock;
	__u64 changed_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct inode_key);
	__type(value, struct untold_file);
} untold_files SEC(".maps");

static __always_inline void count_lost(void)
{
	__u64 *lost = control_word(CONTROL_LOST);

	if (lost)
		__sync_fetch_and_add(lost, 1);
}

/* A clock by which what changed the slot until now can be told from what changes it from now on,
 * although no request was forwarded between.
 */
static __always_inline __u64 clock_after_changes_of(__u32 slot)
{
	__u64 *clock = control_word(CONTROL_CLOCK);
	__u64 *revision = bpf_map_lookup_elem(&revisions, &slot);
	__u64 now;

	if (!clock || !revision)
		return 0;
	now = *(volatile __u64 *)clock & STAMP_MASK;
	if ((*(volatile __u64 *)revision & STAMP_MASK) >= now)
		now = (__sync_fetch_and_add(clock, 1) + 1) & STAMP_MASK;
	return now;
}

static __always_inline void fill_head(struct event_head *head, __u16 kind, __u32 nr, __s64 ret,
				      __s32 dirfd)
{
	__u64 id = bpf_get_current_pid_tgid(), *clock = control_word(CONTROL_CLOCK);

	head->time_ns = bpf_ktime_get_ns();
	head->clock = clock ? *(volatile __u64 *)clock & STAMP_MASK : 0;
	head->ret = ret;
	head->ino = 0;
	head->dir_ino = 0;
	head->dev = 0;
	head->dir_dev = 0;
	head->tgid = id >> 32;
	head->tid = (__u32)id;
	head->dirfd = dirfd;
	head->nr = nr;
	head->kind = kind;
	head->flags = 0;
	head->mode = 0;
	head->path_len = 0;
	head->size = 0;
	head->changed_ns = 0;
	head->open_flags = 0;
	head->reserved = 0;
	head->uid = 0;
	head->gid = 0;
}

/* An event about an open descriptor (or about none: fd < 0). */
__noinline int report_descriptor(__u64 kind, __u64 nr, __s64 ret, int fd)
{
	struct event_head *head = bpf_ringbuf_reserve(&lookups, sizeof(*head), 0);
	struct identity identity = {};

	if (!head) {
		count_lost();
		return 0;
	}
	fill_head(head, kind, nr, ret, fd);
	if (fd >= 0 && identify(file_of(bpf_get_current_task_btf(), fd), &identity)) {
		head->dev = identity.dev;
		head->ino = identity.ino;
		head->mode = identity.mode;
		head->flags = FLAG_INODE | (identity.layered ? FLAG_OVERLAY : 0);
	}
	bpf_ringbuf_submit(head, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Programs of which it has been told that they do what is not seen. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} unseen_programs SEC(".maps");

/* The calling program does something that is not seen, by this call. */
__noinline int report_unseen(__u64 nr)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32, one = 1;
	struct event_head *head;

	if (bpf_map_lookup_elem(&unseen_programs, &tgid))
		return 0;
	head = bpf_ringbuf_reserve(&lookups, sizeof(*head), 0);
	if (!head) {
		count_lost();
		return 0;
	}
	fill_head(head, EVENT_HIDES, nr, 0, -1);
	head->dev = is_bystander(tgid);
	bpf_ringbuf_submit(head, BPF_RB_NO_WAKEUP);
	/* Without room for it, it is told again. */
	bpf_map_update_elem(&unseen_programs, &tgid, &one, BPF_ANY);
	return 0;
}

struct lookup {
	const char *path;
	__s64 ret;
	__u32 nr;
	__s32 dirfd;
	__u16 flags;
	__u16 kind;
	__u32 open_flags;
	bool opened;
};

static __always_inline bool is_reading(struct lookup *lookup, struct identity *identity)
{
	return (identity->mode & S_IFMT) == S_IFREG &&
	       (lookup->open_flags & O_ACCMODE) != O_WRONLY && !(lookup->open_flags & O_PATH);
}

/* There is no room to tell that a file was opened. What the server may have in its memory of it
 * must be known nevertheless.
 */
__noinline int keep_untold(struct lookup *lookup)
{
	struct identity identity = {};
	struct inode_key key = {};
	struct untold_file file = {};

	if (!lookup)
		return 0;
	if (!identify(file_of(bpf_get_current_task_btf(), lookup->ret), &identity) ||
	    !is_reading(lookup, &identity))
		return 0;
	key.ino = identity.ino;
	key.dev = identity.dev;
	file.clock = clock_after_changes_of(slot_of(identity.dev, identity.ino));
	/* Without its path nobody can say what a file on an overlay is made of: it is to be read
	 * again.
	 */
	file.changed_ns = identity.layered ? CHANGED_BEING_WRITTEN : identity.changed_ns;
	if (bpf_map_update_elem(&untold_files, &key, &file, BPF_ANY))
		raise_stamp_for_good(SLOT_EVERYTHING);
	return 0;
}

/* What its paths start at can be asked of its process when the thread has ended: of the first
 * thread, which must be the server's as well, for that others move their root is not witnessed.
 */
static __always_inline bool is_of_process(struct task_struct *task)
{
	struct task_struct *first = task->group_leader;

	return task->fs == first->fs && task->files == first->files && is_server(first);
}

__noinline int report_lookup(struct lookup *lookup)
{
	struct lookup_event *event;
	struct task_struct *task = bpf_get_current_task_btf();
	struct identity identity = {};
	long bytes;

	if (!lookup)
		return 0;
	event = bpf_ringbuf_reserve(&lookups, sizeof(*event), 0);
	if (!event) {
		if (lookup->opened && lookup->ret >= 0) {
			note_reading(0);
			keep_untold(lookup);
		}
		count_lost();
		return 0;
	}
	fill_head(&event->head, lookup->kind, lookup->nr, lookup->ret, lookup->dirfd);
	event->head.flags = lookup->flags | (is_of_process(task) ? FLAG_OF_PROCESS : 0);
	event->head.open_flags = lookup->open_flags;
	bytes = bpf_probe_read_user_str(event->path, PATH_BYTES, lookup->path);
	/* Of an empty string some kernels count the final 0 and others do not; what cannot be read
	 * is below 0.
	 */
	if (bytes == 0)
		bytes = 1;
	if (bytes < 0) {
		event->path[0] = 0;
		bytes = 1;
		event->head.flags |= FLAG_INCOMPLETE;
	}
	/* A path that just fits is taken for a cut one. */
	if (bytes >= PATH_BYTES)
		event->head.flags |= FLAG_INCOMPLETE;
	event->head.path_len = bytes - 1;
	if (bytes == 1 && !(event->head.flags & FLAG_INCOMPLETE)) {
		/* fstat by another name: no path was looked up. */
		bpf_ringbuf_discard(event, BPF_RB_NO_WAKEUP);
		return 0;
	}
	if (lookup->dirfd >= 0 && event->path[0] != '/' &&
	    identify(file_of(task, lookup->dirfd), &identity)) {
		event->head.dir_dev = identity.dev;
		event->head.dir_ino = identity.ino;
		event->head.flags |= FLAG_DIRECTORY;
	}
	if (lookup->opened && lookup->ret >= 0 && identify(file_of(task, lookup->ret), &identity)) {
		event->head.dev = identity.dev;
		event->head.ino = identity.ino;
		event->head.mode = identity.mode;
		event->head.size = identity.size;
		event->head.changed_ns = identity.changed_ns;
		event->head.uid = identity.uid;
		event->head.gid = identity.gid;
		event->head.flags |= FLAG_INODE | (identity.layered ? FLAG_OVERLAY : 0);
		if (is_reading(lookup, &identity)) {
			event->head.clock =
				clock_after_changes_of(slot_of(identity.dev, identity.ino));
			note_reading(event->path);
		}
	}
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

/* The calling process runs a program by this path, which is in the kernel's memory. */
__noinline int report_executed(__u64 path)
{
	struct lookup_event *event = bpf_ringbuf_reserve(&lookups, sizeof(*event), 0);
	long bytes;

	if (!event) {
		count_lost();
		return 0;
	}
	fill_head(&event->head, EVENT_LOOKUP, NR_execve, 0, AT_FDCWD);
	event->head.flags = is_of_process(bpf_get_current_task_btf()) ? FLAG_OF_PROCESS : 0;
	bytes = bpf_probe_read_kernel_str(event->path, PATH_BYTES, (const void *)path);
	if (bytes <= 1) {
		event->path[0] = 0;
		bytes = 1;
	}
	/* A program that was opened before has the name of its descriptor. */
	if (bytes == 1 || bytes >= PATH_BYTES || BEGINS(event->path, "/dev/fd/"))
		event->head.flags |= FLAG_INCOMPLETE;
	event->head.path_len = bytes - 1;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

/* The server removed a name. */
__noinline int report_removed(__u64 path, __s32 dirfd, __u64 nr)
{
	struct lookup lookup = {.path = (const char *)path,
				.nr = nr,
				.dirfd = dirfd,
				.kind = EVENT_REMOVED,
				.flags = FLAG_NOFOLLOW};

	report_lookup(&lookup);
	return 0;
}

#endif
