/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * The kernel's witnesses: whoever changes a file, a directory or a mount on this machine stamps its
 * revision word before the call returns; and what the server looks up is told through a ring.
 *
 * Read first: truth/coherence/src/table.rs (the table and why no lock is needed),
 * truth/watch/src/verdicts/registrar.rs (how fills are judged, and why a witness that fires just
 * before its effect is visible is enough).
 *
 * Which witness sees what on ext4
 *   write(2) and the like, io_uring, splice, copy_file_range, sendfile   ext4_{da_,,journalled_}write_end
 *   O_DIRECT                                                             iomap_dio_complete, by its tracepoint or at its entry
 *   store through a shared mapping      opening for writing (sys_exit), mmap (sys_exit), writeback_dirty_folio, and no
 *                                       fill as long as the file is open for writing or mapped
 *   truncate, fallocate                                                  ext4_truncate_exit, ext4_fallocate_exit
 *   create, unlink, rename, link, symlink, mkdir                         ext4_mark_inode_dirty of the directory
 *   chmod, chown, utimes                                                 ext4_mark_inode_dirty of the file
 *   access control lists, mounts, namespaces                             sys_exit; lists also as attributes.h and uring.h
 *                                                                        say; what a mount means for a path is for the
 *                                                                        watcher to look at
 *   fork, exec, exit in the server's namespace                           sched_process_*
 * These are in ext4.h. XFS, Btrfs and tmpfs are watched by the change times that are set there:
 * times.h, and xfs.h for what leaves them alone; or, where the kernel does not tell of those, at
 * its functions: vfs.h. The table is in table.h; what the server looks at in server.h, and how it
 * is told in lookups.h; what database servers receive and answer in sql.h; which request a process
 * of the server works on in requests.h; which processes outside its network are the server's in
 * members.h; and which of its processes are as good as others in processes.h. Where it can be,
 * calls.h is in the place of sys_exit. Where the kernel stops tasks in the middle of programs at
 * tracepoints, events.h is in the place of most of them, and gaps.h looks after the others.
 *
 * Deliberately absent: writes to the block device below a mounted file system (the kernel itself
 * does not keep those coherent).
 */
#include "kernel.h"
#include "shared.h"
#include "syscalls.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#include "table.h"
#include "files.h"
#include "members.h"
#include "processes.h"
#include "lookups.h"
#include "bytes.h"
#include "requests.h"
#include "server.h"
#include "sql.h"
#include "uring.h"
#include "attributes.h"
#include "ext4.h"
#include "times.h"
#include "xfs.h"
#include "gaps.h"

/* ---- system calls ---- */

#define BIT(nr) (1ULL << ((nr) & 63))

/* One bit per system call that sys_exit cares about, so all others cost one load and a shift.
 */
const volatile __u64 interesting[NR_MAX / 64] = {
	[0] = BIT(NR_accept) | BIT(NR_open) | BIT(NR_stat) | BIT(NR_lstat) | BIT(NR_mmap) |
	      BIT(NR_access) | BIT(NR_sendfile) | BIT(NR_read) | BIT(NR_readv) | BIT(NR_recvfrom) |
	      BIT(NR_recvmsg) | BIT(NR_write) | BIT(NR_pwrite64) | BIT(NR_writev) | BIT(NR_sendto) |
	      BIT(NR_sendmsg) | BIT(NR_shutdown) | BIT(NR_listen),
	[1] = BIT(NR_getdents) | BIT(NR_chdir) | BIT(NR_fchdir) | BIT(NR_creat) | BIT(NR_readlink) |
	      BIT(NR_truncate) | BIT(NR_ftruncate) | BIT(NR_rename) | BIT(NR_mkdir) |
	      BIT(NR_rmdir) | BIT(NR_link) | BIT(NR_unlink) | BIT(NR_symlink) | BIT(NR_chmod) |
	      BIT(NR_fchmod) | BIT(NR_chown) | BIT(NR_fchown) | BIT(NR_lchown),
	[2] = BIT(NR_utime) | BIT(NR_adjtimex) | BIT(NR_mknod) | BIT(NR_statfs) |
	      BIT(NR_pivot_root) | BIT(NR_chroot) | BIT(NR_settimeofday) | BIT(NR_mount) |
	      BIT(NR_umount2) | BIT(NR_setxattr) | BIT(NR_lsetxattr) | BIT(NR_fsetxattr) |
	      BIT(NR_getxattr),
	[3] = BIT(NR_lgetxattr) | BIT(NR_listxattr) | BIT(NR_llistxattr) | BIT(NR_removexattr) |
	      BIT(NR_lremovexattr) | BIT(NR_fremovexattr) | BIT(NR_io_submit) |
	      BIT(NR_getdents64) | BIT(NR_clock_settime) | BIT(NR_utimes),
	[4] = BIT(NR_fchownat) | BIT(NR_futimesat) | BIT(NR_clock_adjtime) | BIT(NR_accept4) |
	      BIT(NR_openat) | BIT(NR_newfstatat) | BIT(NR_readlinkat) | BIT(NR_faccessat) |
	      BIT(NR_unshare) | BIT(NR_name_to_handle_at) | BIT(NR_open_by_handle_at) |
	      BIT(NR_setns) | BIT(NR_mkdirat) | BIT(NR_mknodat) | BIT(NR_unlinkat) |
	      BIT(NR_renameat) | BIT(NR_linkat) | BIT(NR_symlinkat) | BIT(NR_fchmodat) |
	      BIT(NR_splice) | BIT(NR_utimensat) | BIT(NR_pwritev) | BIT(NR_sendmmsg) |
	      BIT(NR_renameat2),
	[5] = BIT(NR_copy_file_range) | BIT(NR_pwritev2) | BIT(NR_statx),
	[6] = BIT(NR_io_uring_setup) | BIT(NR_move_mount) | BIT(NR_fsconfig) | BIT(NR_openat2) |
	      BIT(NR_faccessat2) | BIT(NR_mount_setattr),
	[7] = BIT(NR_fchmodat2) | BIT(NR_setxattrat) | BIT(NR_removexattrat) |
	      BIT(NR_open_tree_attr),
};

/* And one for those by which anybody changes something. */
const volatile __u64 changing[NR_MAX / 64] = {
	[0] = BIT(NR_open) | BIT(NR_mmap) | BIT(NR_listen),
	[1] = BIT(NR_creat),
	[2] = BIT(NR_adjtimex) | BIT(NR_pivot_root) | BIT(NR_settimeofday) | BIT(NR_mount) |
	      BIT(NR_umount2) | BIT(NR_setxattr) | BIT(NR_lsetxattr) | BIT(NR_fsetxattr),
	[3] = BIT(NR_removexattr) | BIT(NR_lremovexattr) | BIT(NR_fremovexattr) |
	      BIT(NR_clock_settime),
	[4] = BIT(NR_clock_adjtime) | BIT(NR_openat) | BIT(NR_open_by_handle_at),
	[6] = BIT(NR_move_mount) | BIT(NR_fsconfig) | BIT(NR_openat2) | BIT(NR_mount_setattr),
	[7] = BIT(NR_setxattrat) | BIT(NR_removexattrat) | BIT(NR_open_tree_attr),
};

/* A regular file is open, or mapped, for writing: from here on its bytes may change without a
 * witness, until it is closed and unmapped, and the registrar refuses fills meanwhile. On ext4 that
 * is so only once it is mapped (files.h). On a stacked file system (overlay) the stores go to the
 * inode below; where it is not known which one that is, everything has changed.
 */
static __always_inline int change_if_open_for_writing(struct file *file, bool mapped)
{
	const struct super_block *super;
	const struct inode *below;
	const void *inode;
	__u64 magic;

	if (kind_of_file(file) != S_IFREG || !(FIELD(struct file, file, f_mode) & FMODE_WRITE))
		return 0;
	inode = FIELD(struct file, file, f_inode);
	super = FIELD(struct inode, inode, i_sb);
	magic = FIELD(struct super_block, super, s_magic);
	if (!mapped && magic == EXT4_MAGIC)
		return 0;
	if (mapped && FIELD(struct super_block, super, s_stack_depth) > 0) {
		below = note_mapping_below(inode, magic);
		change_slot(below ? slot_of(device_of(below), BPF_CORE_READ(below, i_ino))
				  : SLOT_EVERYTHING);
	} else if (mapped && magic == EXT4_MAGIC) {
		note_mapping(FIELD(struct inode, inode, i_ino), device_of(inode));
	}
	change_slot(slot_of(device_of(inode), FIELD(struct inode, inode, i_ino)));
	return 0;
}

__noinline int change_if_writable(int fd, int mapped)
{
	return change_if_open_for_writing(file_of(bpf_get_current_task_btf(), fd), mapped);
}

__noinline int change_descriptor(int fd)
{
	struct file *file = file_of(bpf_get_current_task_btf(), fd);
	struct identity identity = {};
	const void *inode, *super;

	if (!identify(file, &identity))
		return 0;
	inode = FIELD(struct file, file, f_inode);
	super = FIELD(struct inode, inode, i_sb);
	change_lists(slot_of(identity.dev, identity.ino), (identity.mode & S_IFMT) == S_IFDIR,
		     FIELD(struct super_block, super, s_stack_depth) > 0);
	return 0;
}

/* Daemons that keep the time call it all day; only one of its modes sets the clock. */
__noinline int change_if_clock_set(__u64 timex)
{
	__u32 modes;

	/* struct timex: the modes come first. */
	if (bpf_probe_read_user(&modes, sizeof(modes), (void *)timex) || modes & ADJ_SETOFFSET)
		change_slot(SLOT_EVERYTHING);
	return 0;
}

/* A mount, by mount(2) with these flags. What a mount passes on to others changes no path; other
 * options of a file system may change anything on it. Those of the mount alone (MS_REMOUNT with
 * MS_BIND) are looked at with the paths.
 */
__noinline int change_mounts_by(__u64 flags)
{
	if ((flags & (MS_REMOUNT | MS_BIND)) == MS_REMOUNT)
		change_slot(SLOT_EVERYTHING);
	else if (flags & (MS_REMOUNT | MS_BIND) ||
		 !(flags & (MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE)))
		change_slot(SLOT_MOUNTS);
	return 0;
}

/* A file system that is not mounted yet is on nobody's path. */
__noinline int change_file_system_by(__u32 command)
{
	if (command == FSCONFIG_CMD_RECONFIGURE)
		change_slot(SLOT_EVERYTHING);
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
		if (!(regs->r10 & MAP_ANONYMOUS) && ((regs->r10 & MAP_TYPE) == MAP_SHARED ||
						     (regs->r10 & MAP_TYPE) == MAP_SHARED_VALIDATE))
			change_if_writable(regs->r8, true);
		break;
	case NR_fsetxattr:
	case NR_fremovexattr:
		change_descriptor(regs->di);
		break;
	case NR_adjtimex:
		change_if_clock_set(regs->di);
		break;
	case NR_clock_adjtime:
		change_if_clock_set(regs->si);
		break;
	case NR_mount:
		change_mounts_by(regs->r10);
		break;
	case NR_umount2:
	case NR_pivot_root:
	case NR_move_mount:
	case NR_mount_setattr:
	case NR_open_tree_attr:
		change_slot(SLOT_MOUNTS);
		break;
	case NR_fsconfig:
		change_file_system_by(regs->si);
		break;
	case NR_settimeofday:
	case NR_clock_settime:
		change_slot(SLOT_EVERYTHING);
		break;
	case NR_listen:
		note_listening();
		break;
	}
}

/* The same for 32-bit programs and int 0x80, whose numbers and registers are others. A 32-bit
 * server is not followed: it may look up what it likes unseen.
 */
__noinline int observe_compat(__u64 nr, __s64 ret, __u64 fifth)
{
	struct task_struct *task = bpf_get_current_task_btf();

	forget_compat_database(task->tgid);
	if (is_server(task))
		report_unseen(nr);
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
		return change_if_writable((int)fifth, true);
	case NR32_umount:
	case NR32_umount2:
	case NR32_pivot_root:
	case NR_move_mount:
	case NR_mount_setattr:
	case NR_open_tree_attr:
		change_slot(SLOT_MOUNTS);
		return 0;
	case NR32_old_mmap:
		note_unknown_mapping();
		change_slot(SLOT_EVERYTHING);
		return 0;
	case NR32_socketcall:
	case NR32_listen:
		note_listening();
		return 0;
	case NR32_mount:
	case NR32_settimeofday:
	case NR32_clock_settime:
	case NR32_clock_settime64:
	case NR32_adjtimex:
	case NR32_clock_adjtime:
	case NR32_clock_adjtime64:
	case NR_fsconfig:
	case NR_setxattrat:
	case NR_removexattrat:
		change_slot(SLOT_EVERYTHING);
		return 0;
	}
	if (nr >= NR32_setxattr && nr <= NR32_fremovexattr)
		change_slot(SLOT_EVERYTHING);
	return 0;
}

/* The calling process has a child.
 *
 * Database servers are watched by what they receive, not by what they look at; and PostgreSQL has a
 * process for each connection.
 */
static __always_inline int observe_fork(struct task_struct *parent, __u32 child)
{
	__u32 kind = database_kind(parent->tgid);

	if (kind)
		add_database(child, kind);
	else if (is_server(parent)) {
		__u64 *server_netns = control_word(CONTROL_SERVER_NETNS);

		if (server_netns && is_member(server_netns, parent->tgid))
			add_member(child);
		report_started(child, observe_birth(parent->tgid, child, answers(parent->tgid)));
	}
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	return child->tgid == child->pid ? observe_fork(parent, child->tgid) : 0;
}

/* The calling process runs another program. Is that done at the behest of one that takes requests?
 */
static __always_inline bool observe_exec(struct task_struct *task)
{
	__u32 kind = kind_of_name(task), tgid = task->tgid;

	if (kind) {
		add_database(tgid, kind);
		/* What it had in memory alone is gone; and its files may be others. */
		change_slot(SLOT_DATABASES);
		report_database(EVENT_DATABASE_STARTED, tgid, kind);
	} else {
		bpf_map_delete_elem(&databases, &tgid);
	}
	if (!is_server(task) && has_member_name() && !has_children(task))
		add_member(tgid);
	return is_server(task) && observe_replaced(tgid, answers(tgid));
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	if (observe_exec(task)) {
		__u64 program = (__u64)BPF_CORE_READ(bprm, filename),
		      runner = (__u64)BPF_CORE_READ(bprm, interp);

		report_executed(program);
		if (runner != program)
			report_executed(runner);
	}
	return 0;
}

/* Has a process of a database server not ended by itself? PostgreSQL then begins anew, without what
 * it does not log; a process that is told of another's crash ends with 2.
 */
static __always_inline bool is_crash(int exit_code)
{
	return exit_code & 0x7f || (exit_code >> 8 & 0xff) > 1;
}

/* The calling thread ends. */
static __always_inline int observe_end(struct task_struct *task)
{
	__u32 tgid = task->tgid, kind;
	bool is_ours;

	/* A process goes on without its first thread. */
	if (task->signal->live.counter)
		return 0;
	is_ours = is_server(task);
	kind = database_kind(tgid);
	if (kind) {
		/* What it had not finished is undone or done, and none of its connections will
		 * tell.
		 */
		bool has_crashed = is_crash(task->exit_code);
		__u32 first = first_process_of(tgid, kind);

		if (is_at_work(tgid) || has_crashed)
			change_slot(SLOT_DATABASES);
		bpf_map_delete_elem(&databases, &tgid);
		report_database(EVENT_DATABASE_GONE, tgid, has_crashed ? first : 0);
	} else if (is_ours) {
		observe_death(tgid, answers(tgid));
	}
	/* One that has gone to another namespace leaves nothing behind, either. */
	bpf_map_delete_elem(&kin, &tgid);
	bpf_map_delete_elem(&members, &tgid);
	bpf_map_delete_elem(&unseen_programs, &tgid);
	forget_request_process(tgid, is_ours);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *task)
{
	return observe_end(task);
}

static __always_inline int observe_exit(struct task_struct *task, struct pt_regs *regs, long ret)
{
	__u64 nr = regs->orig_ax & ~X32_BIT;
	struct call call;
	__u32 kind;

	if (task->thread_info.status & TS_COMPAT)
		return observe_compat(regs->orig_ax, ret, regs->di);
	if (nr >= NR_MAX || !(interesting[nr / 64] & BIT(nr)))
		return 0;
	if (changing[nr / 64] & BIT(nr)) {
		if (sets_attribute_by_path(nr))
			change_attributes(ret >= 0);
		else if (ret >= 0 || ret < -4095)
			observe_change(regs, nr, ret);
	}
	if (nr == NR_mmap)
		return 0;
	kind = database_kind(task->tgid);
	if (!kind && !is_server(task))
		return 0;
	call.nr = nr;
	call.ret = ret;
	call.args[0] = regs->di;
	call.args[1] = regs->si;
	call.args[2] = regs->dx;
	call.args[3] = regs->r10;
	return kind ? observe_database(&call, kind) : observe_server(&call);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long ret)
{
	return observe_exit(bpf_get_current_task_btf(), regs, ret);
}

#include "vfs.h"
#include "calls.h"
#include "events.h"
#include "notes.h"
