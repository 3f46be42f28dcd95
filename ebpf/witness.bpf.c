/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * The kernel's witnesses: whoever changes a file, a directory or a mount on this machine stamps its revision word
 * before the call returns; and what the server looks up is told through a ring.
 *
 * Read first: crates/coherence/src/table.rs (the table and why no lock is needed), crates/watch/src/registrar.rs (how
 * fills are judged, and why a witness that fires just before its effect is visible is enough).
 *
 * Which witness sees what on ext4
 *   write(2) and the like, io_uring, splice, copy_file_range, sendfile   ext4_{da_,,journalled_}write_end
 *   O_DIRECT                                                             iomap_dio_complete
 *   store through a shared mapping      opening for writing (sys_exit), mmap (sys_exit), writeback_dirty_folio, and no
 *                                       fill as long as the file is open for writing or mapped
 *   truncate, fallocate                                                  ext4_truncate_exit, ext4_fallocate_exit
 *   create, unlink, rename, link, symlink, mkdir                         ext4_mark_inode_dirty of the directory
 *   chmod, chown, utimes                                                 ext4_mark_inode_dirty of the file
 *   access control lists, mounts, namespaces                             sys_exit
 *   fork, exec, exit in the server's namespace                           sched_process_*
 * What database servers receive and answer is in sql.h, which request a process of the server works on in requests.h, and which of its processes
 * are as good as others in processes.h.
 *
 * Deliberately absent: writes to the block device below a mounted file system (the kernel itself does not keep those
 * coherent), and setting an access control list through io_uring.
 */
#include "kernel.h"
#include "shared.h"
#include "syscalls.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, CONTROL_BYTES);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SOURCE_SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} revisions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} lookups SEC(".maps");

/* Change times of inodes that changed within the last minute, and when each was first seen. */
struct inode_key {
	__u64 ino;
	__u64 dev;
};

struct change_time {
	__s64 sec;
	__u64 nsec;
	__u64 seen_ns;
};

#define SETTLED_NS 2000000000ULL

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

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct inode_key);
	__type(value, struct change_time);
} change_times SEC(".maps");

#define BIT(nr) (1ULL << ((nr) & 63))

/* One bit per system call that sys_exit cares about, so that all others cost one load and a shift. */
const volatile __u64 interesting[NR_MAX / 64] = {
	[0] = BIT(NR_accept) | BIT(NR_open) | BIT(NR_stat) | BIT(NR_lstat) | BIT(NR_mmap) | BIT(NR_access) | BIT(NR_sendfile) |
	      BIT(NR_read) | BIT(NR_readv) | BIT(NR_recvfrom) | BIT(NR_recvmsg) | BIT(NR_write) | BIT(NR_pwrite64) | BIT(NR_writev) | BIT(NR_sendto) | BIT(NR_sendmsg) |
	      BIT(NR_shutdown),
	[1] = BIT(NR_getdents) | BIT(NR_chdir) | BIT(NR_fchdir) | BIT(NR_creat) | BIT(NR_readlink) | BIT(NR_truncate) |
	      BIT(NR_ftruncate) | BIT(NR_rename) | BIT(NR_mkdir) | BIT(NR_rmdir) | BIT(NR_link) | BIT(NR_unlink) |
	      BIT(NR_symlink) | BIT(NR_chmod) | BIT(NR_fchmod),
	[2] = BIT(NR_mknod) | BIT(NR_statfs) | BIT(NR_pivot_root) | BIT(NR_chroot) | BIT(NR_settimeofday) | BIT(NR_mount) |
	      BIT(NR_umount2) | BIT(NR_setxattr) | BIT(NR_lsetxattr) | BIT(NR_fsetxattr) | BIT(NR_getxattr),
	[3] = BIT(NR_lgetxattr) | BIT(NR_listxattr) | BIT(NR_llistxattr) | BIT(NR_removexattr) |
	      BIT(NR_lremovexattr) | BIT(NR_fremovexattr) | BIT(NR_getdents64) | BIT(NR_clock_settime),
	[4] = BIT(NR_accept4) | BIT(NR_openat) | BIT(NR_newfstatat) | BIT(NR_readlinkat) | BIT(NR_faccessat) | BIT(NR_unshare) |
	      BIT(NR_name_to_handle_at) | BIT(NR_open_by_handle_at) | BIT(NR_setns) | BIT(NR_mkdirat) | BIT(NR_mknodat) |
	      BIT(NR_unlinkat) | BIT(NR_renameat) | BIT(NR_linkat) | BIT(NR_symlinkat) | BIT(NR_fchmodat) |
	      BIT(NR_utimensat) | BIT(NR_pwritev) | BIT(NR_sendmmsg) | BIT(NR_renameat2),
	[5] = BIT(NR_statx) | BIT(NR_pwritev2),
	[6] = BIT(NR_io_uring_setup) | BIT(NR_move_mount) | BIT(NR_fsconfig) | BIT(NR_fsmount) | BIT(NR_openat2) |
	      BIT(NR_faccessat2) | BIT(NR_mount_setattr),
	[7] = BIT(NR_setxattrat) | BIT(NR_removexattrat) | BIT(NR_open_tree_attr),
};

/* And one for those by which anybody changes something. */
const volatile __u64 changing[NR_MAX / 64] = {
	[0] = BIT(NR_open) | BIT(NR_mmap),
	[1] = BIT(NR_creat),
	[2] = BIT(NR_pivot_root) | BIT(NR_settimeofday) | BIT(NR_mount) | BIT(NR_umount2) | BIT(NR_setxattr) | BIT(NR_lsetxattr) |
	      BIT(NR_fsetxattr),
	[3] = BIT(NR_removexattr) | BIT(NR_lremovexattr) | BIT(NR_fremovexattr) | BIT(NR_clock_settime),
	[4] = BIT(NR_openat) | BIT(NR_open_by_handle_at),
	[6] = BIT(NR_move_mount) | BIT(NR_fsconfig) | BIT(NR_fsmount) | BIT(NR_openat2) | BIT(NR_mount_setattr),
	[7] = BIT(NR_setxattrat) | BIT(NR_removexattrat) | BIT(NR_open_tree_attr),
};

/* ---- the table ---- */

static __always_inline __u64 *control_word(int word)
{
	__u32 zero = 0;
	__u64 *page = bpf_map_lookup_elem(&control, &zero);

	return page ? page + word : 0;
}

/* Same function as SourceSlot::of_inode. */
static __always_inline __u32 slot_of(__u32 dev, __u64 ino)
{
	__u64 mixed = ino + (__u64)dev * 0xff51afd7ed558ccdULL;
	__u32 slot;

	mixed ^= mixed >> 32;
	slot = (mixed * 0x9e3779b97f4a7c15ULL) >> (64 - SLOT_BITS);
	return slot < SLOTS_RESERVED ? slot + SLOTS_RESERVED : slot;
}

/* Raises the slot's stamp to the clock, and returns the word with the flags that it has. */
static __noinline __u64 raise_stamp(__u32 slot)
{
	__u64 *clock_word = control_word(CONTROL_CLOCK);
	__u64 *revision = bpf_map_lookup_elem(&revisions, &slot);
	__u64 clock, word, seen;
	int tries;

	if (!clock_word || !revision)
		return 0;
	clock = *(volatile __u64 *)clock_word & STAMP_MASK;
	word = *(volatile __u64 *)revision;
	for (tries = 0; tries < 64; tries++) {
		if ((word & STAMP_MASK) >= clock)
			return word;
		seen = __sync_val_compare_and_swap(revision, word, (word & ~STAMP_MASK) | clock);
		if (seen == word)
			return word;
		word = seen;
	}
	/* Beaten 64 times in a row. The largest stamp makes the slot uncacheable for good, which is safe. */
	__sync_fetch_and_or(revision, STAMP_MASK);
	return WATCHED | TRACKED;
}

/* Raises the slot's stamp to the clock, and that of all dynamic entries if one depends on it; moves the epoch if the
 * slot is watched.
 */
static __always_inline void change_slot(__u32 slot)
{
	__u64 *epoch = control_word(CONTROL_EPOCH);
	__u64 word = raise_stamp(slot);

	if (word & TRACKED)
		raise_stamp(SLOT_DYNAMIC);
	if (word & WATCHED && epoch)
		__sync_fetch_and_add(epoch, 1);
}

/* Nothing that depends on the slot is cacheable from here on. */
static __always_inline void raise_stamp_for_good(__u32 slot)
{
	__u64 *revision = bpf_map_lookup_elem(&revisions, &slot);

	if (revision)
		__sync_fetch_and_or(revision, STAMP_MASK);
}

static __always_inline void change_inode(struct inode *inode)
{
	change_slot(slot_of(inode->i_sb->s_dev, inode->i_ino));
}

#include "processes.h"

/* ---- file systems ---- */

SEC("tp_btf/ext4_da_write_end")
int BPF_PROG(ext4_da_write_end, struct inode *inode)
{
	change_inode(inode);
	return 0;
}

SEC("tp_btf/ext4_write_end")
int BPF_PROG(ext4_write_end, struct inode *inode)
{
	change_inode(inode);
	return 0;
}

SEC("tp_btf/ext4_journalled_write_end")
int BPF_PROG(ext4_journalled_write_end, struct inode *inode)
{
	change_inode(inode);
	return 0;
}

SEC("tp_btf/ext4_truncate_exit")
int BPF_PROG(ext4_truncate_exit, struct inode *inode)
{
	change_inode(inode);
	return 0;
}

SEC("tp_btf/ext4_fallocate_exit")
int BPF_PROG(ext4_fallocate_exit, struct inode *inode)
{
	change_inode(inode);
	return 0;
}

SEC("tp_btf/ext4_unlink_exit")
int BPF_PROG(ext4_unlink_exit, struct dentry *dentry)
{
	struct inode *inode = dentry->d_inode;

	if (inode)
		change_inode(inode);
	return 0;
}

/* Could the inode's change time have been set by the operation that is under way?
 *
 * Every operation for which ext4_mark_inode_dirty is the only witness (directory entries, mode, owner, times) sets the
 * change time to the present. One that leaves it alone only moves the access time (the server's own first read of a
 * file would void the fill that it belongs to) or allocates blocks for data that were witnessed when written.
 *
 * So the change time must be new, in two senses. It lies within a minute of the clock; the change time is in UTC and
 * the clock in TAI, which is 37 s ahead at most, hence the width. And it was not seen here SETTLED_NS ago already; that
 * is much longer than an operation takes from setting it to marking the inode. A step of the clock is followed by a
 * change of everything (settimeofday, clock_settime).
 */
static __always_inline bool changed_just_now(struct inode *inode)
{
	struct inode_key key = {};
	struct change_time new = {}, *known;
	__s64 age_s;

	if (!bpf_core_field_exists(inode->i_ctime_sec))
		return true;
	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_ktime_get_tai_ns))
		return true;
	new.sec = inode->i_ctime_sec;
	age_s = (__s64)(bpf_ktime_get_tai_ns() / 1000000000) - new.sec;
	if (age_s <= -60 || age_s >= 60)
		return false;
	/* The upper bits are flags: "was queried". */
	new.nsec = inode->i_ctime_nsec & 0x3fffffff;
	new.seen_ns = bpf_ktime_get_ns();
	key.dev = inode->i_sb->s_dev;
	key.ino = inode->i_ino;
	known = bpf_map_lookup_elem(&change_times, &key);
	if (known && known->sec == new.sec && known->nsec == new.nsec)
		return new.seen_ns - known->seen_ns < SETTLED_NS;
	bpf_map_update_elem(&change_times, &key, &new, BPF_ANY);
	return true;
}

SEC("tp_btf/ext4_mark_inode_dirty")
int BPF_PROG(ext4_mark_inode_dirty, struct inode *inode)
{
	if (changed_just_now(inode))
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
SEC("tp_btf/iomap_dio_complete")
int BPF_PROG(iomap_dio_complete, struct kiocb *iocb)
{
	struct file *file = iocb->ki_filp;

	if (file->f_mode & FMODE_WRITE)
		change_inode(file->f_inode);
	return 0;
}

/* ---- processes of the server ---- */

static __always_inline bool is_server(struct task_struct *task)
{
	__u64 *server_netns = control_word(CONTROL_SERVER_NETNS);

	if (!server_netns || !*server_netns)
		return false;
	return task->nsproxy->net_ns->ns.inum == *server_netns;
}

static __always_inline bool is_service_port(__u16 port)
{
	__u64 *ports = control_word(CONTROL_SERVICE_PORTS);

	if (!ports)
		return false;
	return port == (*ports & 0xffff) || port == (*ports >> 16 & 0xffff) || port == (*ports >> 32 & 0xffff) ||
	       port == *ports >> 48;
}

/* ---- system calls ---- */

static __always_inline struct file *file_of(struct task_struct *task, int fd)
{
	struct files_struct *files = task->files;
	struct fdtable *table = FIELD(struct files_struct, files, fdt);
	struct file **slots, *file = 0;

	if (fd < 0 || (unsigned int)fd >= FIELD(struct fdtable, table, max_fds))
		return 0;
	slots = FIELD(struct fdtable, table, fd);
	bpf_probe_read_kernel(&file, sizeof(file), slots + fd);
	return file;
}

/* Of a socket. */
static __always_inline struct sock *sock_of(struct file *file)
{
	void *socket = FIELD(struct file, file, private_data);

	return socket ? FIELD(struct socket, socket, sk) : 0;
}

struct identity {
	__u64 ino;
	__u64 size;
	__u64 changed_ns;
	__u32 dev;
	__u32 links;
	__u16 mode;
};

static __always_inline bool identify(struct file *file, struct identity *identity)
{
	struct inode *inode = file ? FIELD(struct file, file, f_inode) : 0;
	struct super_block *super;

	if (!inode)
		return false;
	super = FIELD(struct inode, inode, i_sb);
	identity->ino = FIELD(struct inode, inode, i_ino);
	identity->size = FIELD(struct inode, inode, i_size);
	identity->changed_ns = 0;
	if (bpf_core_field_exists(inode->i_ctime_sec))
		identity->changed_ns = FIELD(struct inode, inode, i_ctime_sec) * 1000000000ULL +
				       (FIELD(struct inode, inode, i_ctime_nsec) & 0x3fffffff);
	identity->dev = FIELD(struct super_block, super, s_dev);
	identity->mode = FIELD(struct inode, inode, i_mode);
	identity->links = FIELD(struct inode, inode, i_nlink);
	return true;
}

/* A regular file is open, or mapped, for writing: from here on its bytes may change without a witness, until it is
 * closed and unmapped, and the registrar refuses fills meanwhile. A stacked file system (overlay) hides the inode
 * below, whose mapping the stores go to; then everything has changed.
 */
static __noinline int change_if_writable(int fd, int mapped)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct file *file = file_of(task, fd);
	struct identity identity = {};

	if (!identify(file, &identity) || (identity.mode & S_IFMT) != S_IFREG)
		return 0;
	if (!(FIELD(struct file, file, f_mode) & FMODE_WRITE))
		return 0;
	change_slot(slot_of(identity.dev, identity.ino));
	if (mapped && BPF_CORE_READ(file, f_inode, i_sb, s_stack_depth) > 0)
		change_slot(SLOT_EVERYTHING);
	return 0;
}

static __noinline int change_descriptor(int fd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct identity identity = {};

	if (!identify(file_of(task, fd), &identity))
		return 0;
	/* Who may search a directory is not only in its mode: entries below it are not to be reinstated. */
	change_slot((identity.mode & S_IFMT) == S_IFDIR ? SLOT_EVERYTHING : slot_of(identity.dev, identity.ino));
	return 0;
}

static __always_inline void count_lost(void)
{
	__u64 *lost = control_word(CONTROL_LOST);

	if (lost)
		__sync_fetch_and_add(lost, 1);
}

static __always_inline void fill_head(struct event_head *head, __u16 kind, __u32 nr, __s64 ret, __s32 dirfd)
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
}

/* An event about an open descriptor (or about none: fd < 0). */
static __noinline int report_descriptor(__u64 kind, __u64 nr, __s64 ret, int fd)
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
		head->flags = FLAG_INODE;
	}
	bpf_ringbuf_submit(head, BPF_RB_NO_WAKEUP);
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
	return (identity->mode & S_IFMT) == S_IFREG && (lookup->open_flags & O_ACCMODE) != O_WRONLY &&
	       !(lookup->open_flags & O_PATH);
}

/* There is no room to tell that a file was opened. What the server may have in its memory of it must be known nevertheless. */
static __noinline int keep_untold(struct lookup *lookup)
{
	struct identity identity = {};
	struct inode_key key = {};
	struct untold_file file = {};
	__u64 *clock = control_word(CONTROL_CLOCK);

	if (!lookup || !lookup->opened || lookup->ret < 0)
		return 0;
	note_reading(0);
	if (!identify(file_of(bpf_get_current_task_btf(), lookup->ret), &identity) || !is_reading(lookup, &identity))
		return 0;
	key.ino = identity.ino;
	key.dev = identity.dev;
	file.clock = clock ? *(volatile __u64 *)clock & STAMP_MASK : 0;
	file.changed_ns = identity.changed_ns;
	if (bpf_map_update_elem(&untold_files, &key, &file, BPF_ANY))
		raise_stamp_for_good(SLOT_EVERYTHING);
	return 0;
}

static __always_inline void report_lookup(struct lookup *lookup)
{
	struct lookup_event *event = bpf_ringbuf_reserve(&lookups, sizeof(*event), 0);
	struct task_struct *task = bpf_get_current_task_btf();
	struct identity identity = {};
	long bytes;

	if (!event) {
		keep_untold(lookup);
		count_lost();
		return;
	}
	fill_head(&event->head, lookup->kind, lookup->nr, lookup->ret, lookup->dirfd);
	event->head.flags = lookup->flags;
	event->head.open_flags = lookup->open_flags;
	bytes = bpf_probe_read_user_str(event->path, PATH_BYTES, lookup->path);
	if (bytes <= 0) {
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
		return;
	}
	if (lookup->dirfd >= 0 && event->path[0] != '/' && identify(file_of(task, lookup->dirfd), &identity)) {
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
		event->head.flags |= FLAG_INODE;
		if (is_reading(lookup, &identity))
			note_reading(event->path);
	}
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

/* The server removed a name. */
static __noinline int report_removed(const char *path, __s32 dirfd, __u64 nr)
{
	struct lookup lookup = {.path = path, .nr = nr, .dirfd = dirfd, .kind = EVENT_REMOVED, .flags = FLAG_NOFOLLOW};

	report_lookup(&lookup);
	return 0;
}

#include "bytes.h"
#include "requests.h"

/* The server wrote to a descriptor: to a file, which makes its request one that is not only a question, or to a peer.
 * Files opened for appending are logs.
 */
static __noinline int report_written(int fd, __u64 nr, __s64 ret, __u64 bytes)
{
	struct event_head *head;
	struct file *file = file_of(bpf_get_current_task_btf(), fd);
	struct identity identity = {};
	struct sock *sk;
	struct pid *process;
	__u64 peer = 0;
	__u32 family, address;
	__u16 local;
	int ends;

	if (!identify(file, &identity))
		return 0;
	/* A file without a name is nobody else's. */
	if ((identity.mode & S_IFMT) == S_IFREG && !identity.links)
		return 0;
	if ((identity.mode & S_IFMT) == S_IFREG && !(FIELD(struct file, file, f_flags) & O_APPEND))
		return report_descriptor(EVENT_WROTE, nr, ret, fd);
	if ((identity.mode & S_IFMT) != S_IFSOCK)
		return 0;
	sk = sock_of(file);
	if (!sk)
		return 0;
	family = FIELD(struct sock, sk, __sk_common.skc_family);
	local = FIELD(struct sock, sk, __sk_common.skc_num);
	/* To a client of the web server: not a question. */
	if ((family == AF_INET || family == AF_INET6) && is_service_port(local))
		return 0;
	if (family != AF_UNIX)
		note_talk();
	ends = ends_request(identity.ino, nr, ret, bytes);
	address = peer_address(sk);
	if (address)
		family = AF_INET;
	if (family == AF_INET) {
		peer = (__u64)__builtin_bswap32(address) << 16 |
		       __builtin_bswap16(FIELD(struct sock, sk, __sk_common.skc_dport));
	} else if (family == AF_UNIX) {
		process = FIELD(struct sock, sk, sk_peer_pid);
		peer = process ? BPF_CORE_READ(process, numbers[0].nr) : 0;
	}
	if (!ends && is_told(identity.ino, peer))
		return 0;
	head = bpf_ringbuf_reserve(&lookups, sizeof(*head), 0);
	if (!head) {
		count_lost();
		return 0;
	}
	fill_head(head, EVENT_SENT, nr, ret, fd);
	if (ends)
		head->flags = FLAG_REQUEST_END;
	head->ino = peer;
	head->dir_ino = identity.ino;
	head->dev = family;
	head->dir_dev = local;
	bpf_ringbuf_submit(head, BPF_RB_NO_WAKEUP);
	return 0;
}

/* What the server looks at. */
static __noinline int observe_server(struct pt_regs *regs, __s64 ret)
{
	__u64 nr = regs->orig_ax & ~X32_BIT, resolve = 0;
	struct lookup lookup = {.ret = ret, .nr = nr, .dirfd = AT_FDCWD, .kind = EVENT_LOOKUP};

	switch (nr) {
	case NR_open:
		lookup.opened = true;
		lookup.open_flags = regs->si;
		if (regs->si & O_NOFOLLOW)
			lookup.flags = FLAG_NOFOLLOW;
		lookup.path = (const char *)regs->di;
		break;
	case NR_creat:
		lookup.opened = true;
		lookup.open_flags = O_CREAT | O_TRUNC | O_WRONLY;
		lookup.path = (const char *)regs->di;
		break;
	case NR_lstat:
	case NR_readlink:
	case NR_lgetxattr:
	case NR_llistxattr:
		lookup.flags = FLAG_NOFOLLOW;
		lookup.path = (const char *)regs->di;
		break;
	case NR_stat:
	case NR_access:
	case NR_statfs:
	case NR_getxattr:
	case NR_listxattr:
		lookup.path = (const char *)regs->di;
		break;
	case NR_openat:
		lookup.opened = true;
		lookup.open_flags = regs->dx;
		if (regs->dx & O_NOFOLLOW)
			lookup.flags = FLAG_NOFOLLOW;
		lookup.dirfd = regs->di;
		lookup.path = (const char *)regs->si;
		break;
	case NR_openat2:
		lookup.opened = true;
		/* struct open_how: flags, mode, resolve. */
		if (bpf_probe_read_user(&resolve, sizeof(resolve), (void *)(regs->dx + 16)))
			lookup.flags |= FLAG_INCOMPLETE;
		if (resolve & (RESOLVE_IN_ROOT | RESOLVE_BENEATH))
			lookup.flags |= FLAG_OWN_ROOT;
		if (bpf_probe_read_user(&resolve, sizeof(resolve), (void *)regs->dx))
			lookup.flags |= FLAG_INCOMPLETE;
		lookup.open_flags = resolve;
		if (resolve & O_NOFOLLOW)
			lookup.flags |= FLAG_NOFOLLOW;
		lookup.dirfd = regs->di;
		lookup.path = (const char *)regs->si;
		break;
	case NR_newfstatat:
	case NR_faccessat2:
		if (regs->r10 & AT_SYMLINK_NOFOLLOW)
			lookup.flags = FLAG_NOFOLLOW;
		lookup.dirfd = regs->di;
		lookup.path = (const char *)regs->si;
		break;
	case NR_statx:
		if (regs->dx & AT_SYMLINK_NOFOLLOW)
			lookup.flags = FLAG_NOFOLLOW;
		lookup.dirfd = regs->di;
		lookup.path = (const char *)regs->si;
		break;
	case NR_readlinkat:
	case NR_name_to_handle_at:
		lookup.flags = FLAG_NOFOLLOW;
		lookup.dirfd = regs->di;
		lookup.path = (const char *)regs->si;
		break;
	case NR_faccessat:
		lookup.dirfd = regs->di;
		lookup.path = (const char *)regs->si;
		break;
	case NR_accept:
	case NR_accept4:
		return ret >= 0 ? observe_accepted(ret) : 0;
	case NR_read:
	case NR_readv:
	case NR_recvfrom:
	case NR_recvmsg:
		return ret > 0 ? observe_request(regs->di, nr, ret, regs->si) : 0;
	case NR_getdents:
	case NR_getdents64:
		return report_descriptor(EVENT_READDIR, nr, ret, regs->di);
	case NR_sendfile:
		return ret > 0 ? report_descriptor(EVENT_SENDFILE, nr, ret, regs->si) : 0;
	case NR_write:
	case NR_pwrite64:
	case NR_writev:
	case NR_pwritev:
	case NR_pwritev2:
	case NR_sendto:
	case NR_sendmsg:
	case NR_sendmmsg:
		return ret > 0 ? report_written(regs->di, nr, ret, regs->si) : 0;
	case NR_unlink:
		return ret < 0 ? 0 : report_removed((const char *)regs->di, AT_FDCWD, nr);
	case NR_unlinkat:
		return ret < 0 ? 0 : report_removed((const char *)regs->si, regs->di, nr);
	case NR_rename:
	case NR_renameat:
	case NR_renameat2:
	case NR_mkdir:
	case NR_mkdirat:
	case NR_rmdir:
	case NR_link:
	case NR_linkat:
	case NR_symlink:
	case NR_symlinkat:
	case NR_mknod:
	case NR_mknodat:
	case NR_truncate:
	case NR_chmod:
	case NR_fchmodat:
		return ret < 0 ? 0 : report_descriptor(EVENT_WROTE, nr, ret, -1);
	case NR_fchmod:
	case NR_ftruncate:
		return ret < 0 ? 0 : report_written(regs->di, nr, ret, 0);
	case NR_utimensat:
		if (ret < 0)
			return 0;
		/* Without a path it is about the descriptor. */
		return regs->si ? report_descriptor(EVENT_WROTE, nr, ret, -1) : report_written(regs->di, nr, ret, 0);
	case NR_io_uring_setup:
	case NR_open_by_handle_at:
		return report_descriptor(EVENT_HIDDEN, nr, ret, -1);
	case NR_chdir:
	case NR_fchdir:
		/* Relative paths mean something else now. */
		if (ret < 0)
			return 0;
		change_slot(SLOT_WORKING_DIRECTORY);
		if (nr == NR_fchdir)
			return report_descriptor(EVENT_MOVED, nr, ret, -1);
		lookup.kind = EVENT_MOVED;
		lookup.path = (const char *)regs->di;
		break;
	case NR_chroot:
	case NR_setns:
	case NR_unshare:
		/* Paths mean something else now. */
		if (ret >= 0)
			change_slot(SLOT_EVERYTHING);
		return 0;
	default:
		return 0;
	}
	report_lookup(&lookup);
	return 0;
}

/* What anybody changes. */
static __always_inline void observe_change(struct pt_regs *regs, __u64 nr, __s64 ret)
{
	switch (nr) {
	case NR_open:
		if (regs->si & (O_ACCMODE | O_TRUNC))
			change_if_writable(ret, false);
		break;
	case NR_openat:
		if (regs->dx & (O_ACCMODE | O_TRUNC))
			change_if_writable(ret, false);
		break;
	case NR_openat2:
	case NR_creat:
	case NR_open_by_handle_at:
		change_if_writable(ret, false);
		break;
	case NR_mmap:
		if (!(regs->r10 & MAP_ANONYMOUS) &&
		    ((regs->r10 & MAP_TYPE) == MAP_SHARED || (regs->r10 & MAP_TYPE) == MAP_SHARED_VALIDATE))
			change_if_writable(regs->r8, true);
		break;
	case NR_fsetxattr:
	case NR_fremovexattr:
		change_descriptor(regs->di);
		break;
	case NR_mount:
	case NR_umount2:
	case NR_pivot_root:
	case NR_move_mount:
	case NR_fsconfig:
	case NR_fsmount:
	case NR_mount_setattr:
	case NR_open_tree_attr:
	case NR_setxattr:
	case NR_lsetxattr:
	case NR_removexattr:
	case NR_lremovexattr:
	case NR_setxattrat:
	case NR_removexattrat:
	case NR_settimeofday:
	case NR_clock_settime:
		change_slot(SLOT_EVERYTHING);
		break;
	}
}

/* The same for 32-bit programs and int 0x80, whose numbers and registers are others. A 32-bit server is not followed:
 * it may look up what it likes unseen.
 */
static __noinline int observe_compat(struct pt_regs *regs, __s64 ret)
{
	__u64 nr = regs->orig_ax;

	if (is_server(bpf_get_current_task_btf()))
		report_descriptor(EVENT_HIDDEN, nr, ret, -1);
	if (ret < 0 && ret >= -4095)
		return 0;
	switch (nr) {
	case NR32_open:
	case NR32_creat:
	case NR32_openat:
	case NR_openat2:
	case NR32_open_by_handle_at:
		return change_if_writable(ret, false);
	case NR32_mmap2:
		return change_if_writable((int)regs->di, true);
	case NR32_old_mmap:
	case NR32_mount:
	case NR32_umount:
	case NR32_umount2:
	case NR32_pivot_root:
	case NR32_settimeofday:
	case NR32_clock_settime:
	case NR32_clock_settime64:
	case NR_move_mount:
	case NR_fsconfig:
	case NR_fsmount:
	case NR_mount_setattr:
	case NR_open_tree_attr:
	case NR_setxattrat:
	case NR_removexattrat:
		change_slot(SLOT_EVERYTHING);
		return 0;
	}
	if (nr >= NR32_setxattr && nr <= NR32_fremovexattr)
		change_slot(SLOT_EVERYTHING);
	return 0;
}

#include "sql.h"

/* Database servers are watched by what they receive, not by what they look at; and PostgreSQL has a process for each connection. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 kind;

	if (child->tgid != child->pid)
		return 0;
	kind = database_kind(parent->tgid);
	if (kind)
		add_database(child->tgid, kind);
	else if (is_server(parent))
		observe_birth(parent->tgid, child->tgid, request_process_of(parent->tgid) != 0);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *task)
{
	__u32 kind = kind_of_name(task), tgid = task->tgid;

	if (kind) {
		add_database(tgid, kind);
		report_database(EVENT_DATABASE_STARTED, tgid, kind);
	} else {
		bpf_map_delete_elem(&databases, &tgid);
	}
	if (is_server(task))
		observe_replaced(tgid);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *task)
{
	__u32 tgid = task->tgid;

	if (task->tgid != task->pid)
		return 0;
	if (database_kind(tgid)) {
		/* What it had not finished is undone or done, and none of its connections will tell. */
		if (is_at_work(tgid))
			change_slot(SLOT_DATABASES);
		bpf_map_delete_elem(&databases, &tgid);
		report_database(EVENT_DATABASE_GONE, tgid, 0);
	} else if (is_server(task)) {
		observe_death(tgid);
	}
	/* One that has gone to another namespace leaves nothing behind, either. */
	bpf_map_delete_elem(&kin, &tgid);
	forget_request_process(tgid, is_server(task));
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long ret)
{
	__u64 nr = regs->orig_ax & ~X32_BIT;
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 kind;

	if (task->thread_info.status & TS_COMPAT)
		return observe_compat(regs, ret);
	if (nr >= NR_MAX || !(interesting[nr / 64] & BIT(nr)))
		return 0;
	if (changing[nr / 64] & BIT(nr) && (ret >= 0 || ret < -4095))
		observe_change(regs, nr, ret);
	if (nr == NR_mmap)
		return 0;
	kind = database_kind(task->tgid);
	if (kind)
		return observe_database(regs, nr, ret, kind);
	if (is_server(task))
		observe_server(regs, ret);
	return 0;
}
