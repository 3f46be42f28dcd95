/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * The system calls, seen at the kernel's functions that do their work. Included by witness.bpf.c,
 * whose sys_exit is the other way to see the same.
 *
 * A tracepoint at the end of system calls costs every process of the machine 158 instructions for
 * each of its calls (6.18). A program at a function costs as much, but only who calls that. So
 * nothing is attached where most calls go by: reading and writing of files and pipes, fstat,
 * polling, timers, memory. What is seen is the same, by the same functions: server.h, sql.h, and
 * below what anybody changes.
 *
 *   function                          of                                        instead of
 *   do_sys_openat2                    open, openat, openat2, creat              the call's end
 *   filename_lookup                   stat, access, readlink, statfs, ...       the call's end: what fails later counts as found
 *   *_recvmsg                         read, readv, recvfrom, recvmsg            the call's end, of sockets
 *   security_socket_sendmsg           write, writev, sendto, sendmsg, io_submit the call's end: what is about to be sent counts as sent
 *   __x64_sys_splice                  splice to a socket                        the call's end: the same. Until 6.4 nothing is sent by the function above
 *   *_write_iter                      write and the like to a file              the call's end: what is about to be written counts as written
 *   security_mmap_file                mmap                                      the call's end; the file is open for writing until it is unmapped
 *   security_inode_*                  what the server changes by a name         the call's end: what is about to be changed counts as changed
 *   *_setxattr, *_acl, ...            setxattr and the like (vfs.h)             the call's end
 *   __x64_sys_*, __ia32_sys_*         all others
 *
 * The kernel passes by a program that has been stopped on the same processor, so this way is taken
 * only where it stops nothing in the middle of its own work (preemption.bpf.c). None of these
 * functions is called by an interrupt.
 */
#ifndef NICACHE_CALLS_H
#define NICACHE_CALLS_H

/* ---- the call that the current thread is in ---- */

static __always_inline struct pt_regs *registers_of(struct task_struct *task)
{
	return (struct pt_regs *)bpf_task_pt_regs(task);
}

static __always_inline void fill_call(struct call *call, struct pt_regs *regs, __s64 ret)
{
	call->nr = regs->orig_ax & ~X32_BIT;
	call->ret = ret;
	call->args[0] = regs->di;
	call->args[1] = regs->si;
	call->args[2] = regs->dx;
	call->args[3] = regs->r10;
}

/* A 32-bit program is not followed; see observe_compat. */
static __always_inline bool is_compat(struct task_struct *task)
{
	if (!(task->thread_info.status & TS_COMPAT))
		return false;
	forget_compat_database(task->tgid);
	if (is_server(task))
		report_unseen(registers_of(task)->orig_ax);
	return true;
}

/* The server's, but for databases, which are watched by what they receive and send. */
static __always_inline bool is_followed(struct task_struct *task)
{
	return is_server(task) && !database_kind(task->tgid) && !is_compat(task);
}

/* ---- paths ---- */

/* Those kinds of file systems at whose writing functions a program is attached. Set before this is
 * loaded.
 */
const volatile __u32 seen_writes SEC(".rodata.calls") = 0;

static __always_inline __u32 writes_of(__u64 magic)
{
	switch (magic) {
	case EXT4_MAGIC:
		return WRITES_EXT4;
	case XFS_MAGIC:
		return WRITES_XFS;
	case BTRFS_MAGIC:
		return WRITES_BTRFS;
	case TMPFS_MAGIC:
		return WRITES_TMPFS;
	case OVERLAY_MAGIC:
		return WRITES_OVERLAY;
	case FUSE_MAGIC:
		return WRITES_FUSE;
	case NFS_MAGIC:
		return WRITES_NFS;
	}
	return 0;
}

/* The server has opened a file to write to. If nobody will see it do so, it is about to, and each
 * request that the process takes from now on may.
 */
__noinline int note_writer(int fd)
{
	struct file *file = file_of(bpf_get_current_task_btf(), fd);
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct request_process *process;
	struct identity identity = {};
	struct super_block *super;

	if (!identify(file, &identity) || (identity.mode & S_IFMT) != S_IFREG ||
	    !is_content(file, &identity))
		return 0;
	super = BPF_CORE_READ(file, f_inode, i_sb);
	if (seen_writes & writes_of(FIELD(struct super_block, super, s_magic)))
		return 0;
	process = request_process_of(tgid);
	if (!process)
		process = add_request_process(tgid);
	if (!process)
		return report_descriptor(EVENT_HIDDEN, NR_open, 0, -1);
	process->writes_unseen = 1;
	process->may_serve = 1;
	return report_identity(EVENT_WROTE, NR_open, &identity);
}

SEC("fexit/do_sys_openat2")
int BPF_PROG(do_sys_openat2, int dirfd, const char *path, struct open_how *how, long fd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct lookup lookup = {.kind = EVENT_LOOKUP, .opened = true};

	if (fd >= 0 && how->flags & (O_ACCMODE | O_TRUNC))
		change_if_writable(fd, false);
	if (!is_followed(task))
		return 0;
	lookup.nr = registers_of(task)->orig_ax & ~X32_BIT;
	lookup.ret = fd;
	lookup.dirfd = dirfd;
	lookup.path = path;
	lookup.open_flags = how->flags;
	if (how->flags & O_NOFOLLOW)
		lookup.flags |= FLAG_NOFOLLOW;
	if (how->resolve & (RESOLVE_IN_ROOT | RESOLVE_BENEATH))
		lookup.flags |= FLAG_OWN_ROOT;
	if (fd >= 0 && how->flags & O_ACCMODE)
		note_writer(fd);
	report_lookup(&lookup);
	return 0;
}

/* By a structure that begins with a number, because a cast needs one of the kernel's. */
static __always_inline __u8 first_byte(const char *kernel_memory)
{
	return FIELD(struct timespec64, kernel_memory, tv_sec);
}

/* Those that look up a path and do nothing else. */
static __always_inline bool is_looking(__u64 nr)
{
	switch (nr) {
	case NR_stat:
	case NR_lstat:
	case NR_newfstatat:
	case NR_statx:
	case NR_statfs:
	case NR_access:
	case NR_faccessat:
	case NR_faccessat2:
	case NR_readlink:
	case NR_readlinkat:
	case NR_getxattr:
	case NR_lgetxattr:
	case NR_listxattr:
	case NR_llistxattr:
	case NR_name_to_handle_at:
		return true;
	}
	return false;
}

SEC("fexit/filename_lookup")
int BPF_PROG(filename_lookup, int dirfd, struct filename *name, unsigned int flags, void *path,
	     void *root, int ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct lookup lookup = {.kind = EVENT_LOOKUP};

	if (!is_followed(task))
		return 0;
	lookup.nr = registers_of(task)->orig_ax & ~X32_BIT;
	/* An empty path is fstat by another name: nothing was looked up. */
	if (!is_looking(lookup.nr) || !first_byte(name->name))
		return 0;
	lookup.ret = ret;
	lookup.dirfd = dirfd;
	lookup.path = name->uptr;
	lookup.flags = flags & LOOKUP_FOLLOW ? 0 : FLAG_NOFOLLOW;
	report_lookup(&lookup);
	return 0;
}

/* ---- sockets ---- */

/* The kernel receives and sends for other calls, too, and by sockets of its own, which are not
 * looked at.
 */
static __always_inline bool is_receiving(__u64 nr)
{
	return nr == NR_read || nr == NR_readv || nr == NR_recvfrom || nr == NR_recvmsg;
}

static __always_inline bool is_sending(__u64 nr)
{
	return nr == NR_write || nr == NR_writev || nr == NR_sendto || nr == NR_sendmsg ||
	       nr == NR_sendmmsg || nr == NR_pwritev2 || nr == NR_io_submit;
}

static __always_inline bool fill_transfer(struct transfer *transfer, struct socket *socket,
					  struct pt_regs *regs, __s64 ret)
{
	struct file *file = socket->file;
	struct sock *sk = socket->sk;

	if (!file || !sk)
		return false;
	transfer->ino = file->f_inode->i_ino;
	transfer->sk = sk;
	transfer->family = sk->__sk_common.skc_family;
	transfer->port = sk->__sk_common.skc_num;
	transfer->nr = regs->orig_ax & ~X32_BIT;
	transfer->ret = ret;
	transfer->fd = regs->di;
	transfer->bytes = regs->si;
	transfer->flags = regs->r10;
	return true;
}

/* The calling process has received or is about to send so many bytes. */
static __always_inline void observe_transfer(struct socket *socket, __s64 bytes, bool sends)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = registers_of(task);
	__u64 nr = regs->orig_ax & ~X32_BIT;
	bool may_be = may_be_database(task->tgid);
	struct transfer transfer = {};
	struct sql_connection *connection;
	__u32 kind;

	/* Its calls have other numbers. */
	if (may_be && is_compat(task))
		return;
	if (!(sends ? is_sending(nr) : is_receiving(nr)) ||
	    (!may_be && (bytes <= 0 || !is_server(task))))
		return;
	if (!fill_transfer(&transfer, socket, regs, bytes))
		return;
	if (may_be) {
		connection = bpf_map_lookup_elem(&sql_connections, &transfer.ino);
		kind = kind_by_connection(task, connection);
		if (kind) {
			if (sends)
				observe_sent(&transfer, connection, kind);
			else
				observe_received(&transfer, connection, kind);
			return;
		}
		if (bytes <= 0 || !is_server(task))
			return;
	}
	if (is_compat(task))
		return;
	if (sends)
		report_sent(&transfer);
	else
		observe_request(&transfer);
}

#define RECEIVES(name)                                                                          \
	SEC("fexit/" #name)                                                                     \
	int BPF_PROG(name, struct socket *socket, void *message, unsigned long size, int flags, \
		     int ret)                                                                   \
	{                                                                                       \
		observe_transfer(socket, ret, false);                                           \
		return 0;                                                                       \
	}

RECEIVES(inet_recvmsg)
RECEIVES(inet6_recvmsg)
RECEIVES(unix_stream_recvmsg)
RECEIVES(unix_dgram_recvmsg)
RECEIVES(unix_seqpacket_recvmsg)

SEC("fentry/security_socket_sendmsg")
int BPF_PROG(security_socket_sendmsg, struct socket *socket, void *message, int size)
{
	observe_transfer(socket, size, true);
	return 0;
}

/* ---- files that the server writes ---- */

#define WRITES(name)                                                                     \
	SEC("fentry/" #name)                                                             \
	int BPF_PROG(name, struct kiocb *iocb)                                           \
	{                                                                                \
		struct task_struct *task = bpf_get_current_task_btf();                   \
                                                                                         \
		if (is_followed(task))                                                   \
			report_file_written(iocb->ki_filp, registers_of(task)->orig_ax); \
		return 0;                                                                \
	}

WRITES(generic_file_write_iter)
WRITES(shmem_file_write_iter)
WRITES(ext4_file_write_iter)
WRITES(xfs_file_write_iter)
WRITES(btrfs_file_write_iter)
WRITES(ovl_write_iter)
WRITES(fuse_file_write_iter)
WRITES(nfs_file_write)

SEC("fentry/security_mmap_file")
int BPF_PROG(security_mmap_file, struct file *file, unsigned long protection, unsigned long flags)
{
	__u64 kind = flags & MAP_TYPE;

	if (file && !(flags & MAP_ANONYMOUS) && (kind == MAP_SHARED || kind == MAP_SHARED_VALIDATE))
		change_if_open_for_writing(file, true);
	return 0;
}

/* ---- names ---- */

/* The server is about to change a name or an attribute. */
static __always_inline void observe_changing(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct call call;

	if (!is_followed(task))
		return;
	fill_call(&call, registers_of(task), 0);
	observe_changed(&call);
}

/* Anybody is, in one directory; and the inode that has the name. */
#define CHANGES_NAME(name)                                                 \
	SEC("fentry/" #name)                                               \
	int BPF_PROG(name, struct inode *directory, struct dentry *dentry) \
	{                                                                  \
		change_names(directory, dentry);                           \
		observe_changing();                                        \
		return 0;                                                  \
	}

CHANGES_NAME(security_inode_create)
CHANGES_NAME(security_inode_unlink)
CHANGES_NAME(security_inode_symlink)
CHANGES_NAME(security_inode_mkdir)
CHANGES_NAME(security_inode_rmdir)
CHANGES_NAME(security_inode_mknod)

SEC("fentry/security_inode_link")
int BPF_PROG(security_inode_link, struct dentry *old, struct inode *directory)
{
	change_names(directory, old);
	observe_changing();
	return 0;
}

SEC("fentry/security_inode_rename")
int BPF_PROG(security_inode_rename, struct inode *old_directory, struct dentry *old,
	     struct inode *new_directory, struct dentry *new)
{
	change_names(old_directory, old);
	change_names(new_directory, new);
	observe_changing();
	return 0;
}

SEC("fentry/security_inode_setattr")
int BPF_PROG(security_inode_setattr)
{
	observe_changing();
	return 0;
}

/* ---- rare calls ---- */

/* Of the server: `action` with the call's `regs` and `ret`. */
#define OF_SERVER(name, action)                                        \
	SEC("fexit/" #name)                                            \
	int BPF_PROG(name, struct pt_regs *regs, long ret)             \
	{                                                              \
		struct task_struct *task = bpf_get_current_task_btf(); \
                                                                       \
		if (is_followed(task))                                 \
			action;                                        \
		return 0;                                              \
	}

/* The kernel is about to move, or has moved, so many bytes to a descriptor. To a client of the web
 * server that says nothing.
 */
static __always_inline void observe_passed(int fd, __u64 nr, __s64 bytes)
{
	struct transfer transfer = {.nr = nr, .ret = bytes};

	if (is_by_socket(fd, &transfer))
		report_sent(&transfer);
}

SEC("fentry/__x64_sys_splice")
int BPF_PROG(__x64_sys_splice, struct pt_regs *regs)
{
	if (is_followed(bpf_get_current_task_btf()))
		observe_passed(regs->dx, NR_splice, regs->r8);
	return 0;
}

static __always_inline void observe_sendfile(struct pt_regs *regs, __s64 ret)
{
	if (ret <= 0)
		return;
	report_descriptor(EVENT_SENDFILE, NR_sendfile, ret, regs->si);
	observe_passed(regs->di, NR_sendfile, ret);
}

static __always_inline void observe_moving(struct pt_regs *regs, __s64 ret)
{
	struct call call;

	fill_call(&call, regs, ret);
	observe_moved(&call);
}

OF_SERVER(__x64_sys_accept, if (ret >= 0) observe_accepted(ret))
OF_SERVER(__x64_sys_accept4, if (ret >= 0) observe_accepted(ret))
OF_SERVER(__x64_sys_getdents, report_descriptor(EVENT_READDIR, NR_getdents, ret, regs->di))
OF_SERVER(__x64_sys_getdents64, report_descriptor(EVENT_READDIR, NR_getdents64, ret, regs->di))
OF_SERVER(__x64_sys_sendfile64, observe_sendfile(regs, ret))
/* Most file systems write what is copied, but some share it. */
OF_SERVER(__x64_sys_copy_file_range, if (ret > 0) report_written(regs->dx, NR_copy_file_range))
OF_SERVER(__x64_sys_chdir, observe_moving(regs, ret))
OF_SERVER(__x64_sys_fchdir, observe_moving(regs, ret))
OF_SERVER(__x64_sys_chroot, if (ret >= 0) observe_other_root())
OF_SERVER(__x64_sys_setns, if (ret >= 0) observe_other_root())
OF_SERVER(__x64_sys_unshare, if (ret >= 0) observe_other_root())
OF_SERVER(__x64_sys_listen, if (ret >= 0) observe_listening())
/* One that fails is a look at what the kernel has. */
OF_SERVER(__x64_sys_io_uring_setup,
	  if (ret >= 0) report_descriptor(EVENT_HIDDEN, NR_io_uring_setup, ret, -1))

/* Of a database server. */
SEC("fexit/__x64_sys_shutdown")
int BPF_PROG(__x64_sys_shutdown, struct pt_regs *regs, long ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 kind = database_kind(task->tgid);
	struct call call;

	if (!kind || is_compat(task))
		return 0;
	fill_call(&call, regs, ret);
	observe_shutdown(&call, kind);
	return 0;
}

/* Of anybody. */
#define OPENS_BY_HANDLE(name)                                                          \
	SEC("fexit/" #name)                                                            \
	int BPF_PROG(name, struct pt_regs *regs, long fd)                              \
	{                                                                              \
		if (fd < 0)                                                            \
			return 0;                                                      \
		change_if_writable(fd, false);                                         \
		if (is_server(bpf_get_current_task_btf()))                             \
			report_descriptor(EVENT_HIDDEN, NR_open_by_handle_at, fd, -1); \
		return 0;                                                              \
	}

OPENS_BY_HANDLE(__x64_sys_open_by_handle_at)
OPENS_BY_HANDLE(__ia32_compat_sys_open_by_handle_at)

#define MOUNTS_BY(name, change)                            \
	SEC("fexit/" #name)                                \
	int BPF_PROG(name, struct pt_regs *regs, long ret) \
	{                                                  \
		if (ret >= 0)                              \
			change;                            \
		return 0;                                  \
	}

MOUNTS_BY(__x64_sys_mount, change_mounts_by(regs->r10))
MOUNTS_BY(__x64_sys_umount, change_slot(SLOT_MOUNTS))
MOUNTS_BY(__x64_sys_pivot_root, change_slot(SLOT_MOUNTS))
MOUNTS_BY(__x64_sys_move_mount, change_slot(SLOT_MOUNTS))
MOUNTS_BY(__x64_sys_fsconfig, change_file_system_by(regs->si))
MOUNTS_BY(__x64_sys_mount_setattr, change_slot(SLOT_MOUNTS))
MOUNTS_BY(__x64_sys_open_tree_attr, change_slot(SLOT_MOUNTS))
MOUNTS_BY(__ia32_sys_mount, change_mounts_by(regs->si))
MOUNTS_BY(__ia32_sys_umount, change_slot(SLOT_MOUNTS))
MOUNTS_BY(__ia32_sys_oldumount, change_slot(SLOT_MOUNTS))
MOUNTS_BY(__ia32_sys_pivot_root, change_slot(SLOT_MOUNTS))
MOUNTS_BY(__ia32_sys_move_mount, change_slot(SLOT_MOUNTS))
MOUNTS_BY(__ia32_sys_fsconfig, change_file_system_by(regs->cx))
MOUNTS_BY(__ia32_sys_mount_setattr, change_slot(SLOT_MOUNTS))
MOUNTS_BY(__ia32_sys_open_tree_attr, change_slot(SLOT_MOUNTS))

SEC("fexit/inet_csk_listen_start")
int BPF_PROG(inet_csk_listen_start)
{
	note_listening();
	return 0;
}

SEC("fexit/do_settimeofday64")
int BPF_PROG(do_settimeofday64, void *time, int ret)
{
	if (!ret)
		change_slot(SLOT_EVERYTHING);
	return 0;
}

/* Daemons that keep the time call it all day; only this one of its modes sets the clock. */
SEC("fexit/do_adjtimex")
int BPF_PROG(do_adjtimex, struct __kernel_timex *how, int ret)
{
	if (ret >= 0 && how->modes & ADJ_SETOFFSET)
		change_slot(SLOT_EVERYTHING);
	return 0;
}

#endif
