/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * What the server looks at and writes, by the system calls of its processes. Included by
 * witness.bpf.c.
 */
#ifndef NICACHE_SERVER_H
#define NICACHE_SERVER_H

/* To whom nobody else's file is of interest: one that is opened for appending is a log, and one
 * without a name is nobody else's.
 */
static __always_inline bool is_content(struct file *file, struct identity *identity)
{
	return identity->links && !(FIELD(struct file, file, f_flags) & O_APPEND);
}

__noinline int report_identity(__u64 kind, __u64 nr, struct identity *identity)
{
	struct event_head *head;

	if (!identity)
		return 0;
	head = bpf_ringbuf_reserve(&lookups, sizeof(*head), 0);
	if (!head) {
		count_lost();
		return 0;
	}
	fill_head(head, kind, nr, 0, -1);
	head->dev = identity->dev;
	head->ino = identity->ino;
	head->mode = identity->mode;
	head->flags = FLAG_INODE;
	bpf_ringbuf_submit(head, BPF_RB_NO_WAKEUP);
	return 0;
}

/* The server is about to write to a file. */
static __always_inline int report_file_written(struct file *file, __u64 nr)
{
	struct identity identity = {};

	if (!identify(file, &identity) || (identity.mode & S_IFMT) != S_IFREG ||
	    !is_content(file, &identity))
		return 0;
	return report_identity(EVENT_WROTE, nr & ~X32_BIT, &identity);
}

/* The server changed an open file, which makes its request one that is not only a question. */
__noinline int report_written(int fd, __u64 nr)
{
	struct file *file = file_of(bpf_get_current_task_btf(), fd);

	return kind_of_file(file) == S_IFREG ? report_file_written(file, nr) : 0;
}

/* The server sent something to a peer. */
__noinline int report_sent(struct transfer *transfer)
{
	struct request_process *process;
	struct event_head *head;
	struct sock *sk;
	__u64 peer = 0;
	__u32 family, address;
	bool ends;

	if (!transfer)
		return 0;
	/* To a client of the web server: not a question. */
	if (is_inet(transfer) && is_service_port(transfer->port))
		return 0;
	process = request_process_of(bpf_get_current_pid_tgid() >> 32);
	/* One that has had a connection is not starting. */
	if (transfer->family != AF_UNIX && !(process && process->ino))
		note_talk();
	ends = ends_request(transfer, process);
	sk = (struct sock *)transfer->sk;
	family = transfer->family;
	address = peer_address(sk);
	if (address)
		family = AF_INET;
	if (family == AF_INET)
		peer = (__u64)__builtin_bswap32(address) << 16 |
		       __builtin_bswap16(FIELD(struct sock, sk, __sk_common.skc_dport));
	else
		peer = peer_process(transfer);
	if (!ends && is_told(transfer, process, peer))
		return 0;
	head = bpf_ringbuf_reserve(&lookups, sizeof(*head), 0);
	if (!head) {
		count_lost();
		return 0;
	}
	fill_head(head, EVENT_SENT, transfer->nr, transfer->ret, transfer->fd);
	if (ends)
		head->flags = FLAG_REQUEST_END;
	head->ino = peer;
	head->dir_ino = transfer->ino;
	head->dev = family;
	/* By it a reply to a client of another service is told from a question. */
	head->dir_dev = is_inet(transfer) && FIELD(struct sock, sk, sk_protocol) == IPPROTO_TCP
				? transfer->port
				: 0;
	bpf_ringbuf_submit(head, BPF_RB_NO_WAKEUP);
	return 0;
}

/* A path that the server has looked up, or failed to. */
__noinline int observe_looked(struct call *call)
{
	struct lookup lookup = {.dirfd = AT_FDCWD, .kind = EVENT_LOOKUP};

	if (!call)
		return 0;
	lookup.nr = call->nr;
	lookup.ret = call->ret;
	switch (call->nr) {
	case NR_lstat:
	case NR_readlink:
	case NR_lgetxattr:
	case NR_llistxattr:
		lookup.flags = FLAG_NOFOLLOW;
		lookup.path = (const char *)call->args[0];
		break;
	case NR_stat:
	case NR_access:
	case NR_statfs:
	case NR_getxattr:
	case NR_listxattr:
		lookup.path = (const char *)call->args[0];
		break;
	case NR_newfstatat:
	case NR_faccessat2:
		if (call->args[3] & AT_SYMLINK_NOFOLLOW)
			lookup.flags = FLAG_NOFOLLOW;
		lookup.dirfd = call->args[0];
		lookup.path = (const char *)call->args[1];
		break;
	case NR_statx:
		if (call->args[2] & AT_SYMLINK_NOFOLLOW)
			lookup.flags = FLAG_NOFOLLOW;
		lookup.dirfd = call->args[0];
		lookup.path = (const char *)call->args[1];
		break;
	case NR_readlinkat:
	case NR_name_to_handle_at:
		lookup.flags = FLAG_NOFOLLOW;
		lookup.dirfd = call->args[0];
		lookup.path = (const char *)call->args[1];
		break;
	case NR_faccessat:
		lookup.dirfd = call->args[0];
		lookup.path = (const char *)call->args[1];
		break;
	default:
		return 0;
	}
	return report_lookup(&lookup);
}

/* One that it has opened, or failed to. */
__noinline int observe_opened(struct call *call)
{
	struct lookup lookup = {.dirfd = AT_FDCWD, .kind = EVENT_LOOKUP, .opened = true};
	__u64 word = 0;

	if (!call)
		return 0;
	lookup.nr = call->nr;
	lookup.ret = call->ret;
	switch (call->nr) {
	case NR_open:
		lookup.open_flags = call->args[1];
		if (call->args[1] & O_NOFOLLOW)
			lookup.flags = FLAG_NOFOLLOW;
		lookup.path = (const char *)call->args[0];
		break;
	case NR_creat:
		lookup.open_flags = O_CREAT | O_TRUNC | O_WRONLY;
		lookup.path = (const char *)call->args[0];
		break;
	case NR_openat:
		lookup.open_flags = call->args[2];
		if (call->args[2] & O_NOFOLLOW)
			lookup.flags = FLAG_NOFOLLOW;
		lookup.dirfd = call->args[0];
		lookup.path = (const char *)call->args[1];
		break;
	case NR_openat2:
		/* struct open_how: flags, mode, resolve. */
		if (bpf_probe_read_user(&word, sizeof(word), (void *)(call->args[2] + 16)))
			lookup.flags |= FLAG_INCOMPLETE;
		if (word & (RESOLVE_IN_ROOT | RESOLVE_BENEATH))
			lookup.flags |= FLAG_OWN_ROOT;
		if (bpf_probe_read_user(&word, sizeof(word), (void *)call->args[2]))
			lookup.flags |= FLAG_INCOMPLETE;
		lookup.open_flags = word;
		if (word & O_NOFOLLOW)
			lookup.flags |= FLAG_NOFOLLOW;
		lookup.dirfd = call->args[0];
		lookup.path = (const char *)call->args[1];
		break;
	default:
		return 0;
	}
	return report_lookup(&lookup);
}

/* The server changes a name or an attribute. */
__noinline int observe_changed(struct call *call)
{
	__u64 nr;
	__s64 ret;

	if (!call)
		return 0;
	nr = call->nr;
	ret = call->ret;
	switch (nr) {
	case NR_unlink:
		return ret < 0 ? 0 : report_removed(call->args[0], AT_FDCWD, nr);
	case NR_unlinkat:
		return ret < 0 ? 0 : report_removed(call->args[1], call->args[0], nr);
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
	case NR_fchmodat2:
	case NR_chown:
	case NR_lchown:
	case NR_fchownat:
	case NR_utime:
	case NR_utimes:
		return ret < 0 ? 0 : report_descriptor(EVENT_WROTE, nr, ret, -1);
	case NR_fchmod:
	case NR_fchown:
	case NR_ftruncate:
		return ret < 0 ? 0 : report_written(call->args[0], nr);
	case NR_utimensat:
	case NR_futimesat:
		if (ret < 0)
			return 0;
		/* Without a path it is about the descriptor. */
		return call->args[1] ? report_descriptor(EVENT_WROTE, nr, ret, -1)
				     : report_written(call->args[0], nr);
	default:
		return 0;
	}
}

/* It may look up relative paths elsewhere from now on. */
__noinline int observe_moved(struct call *call)
{
	struct lookup lookup = {.dirfd = AT_FDCWD, .kind = EVENT_MOVED};

	if (!call || call->ret < 0)
		return 0;
	change_slot(SLOT_WORKING_DIRECTORY);
	if (call->nr == NR_fchdir)
		return report_descriptor(EVENT_MOVED, call->nr, call->ret, -1);
	lookup.nr = call->nr;
	lookup.ret = call->ret;
	lookup.path = (const char *)call->args[0];
	return report_lookup(&lookup);
}

/* Is the process one that takes requests for pages? One that is gone may have been. */
static __always_inline bool may_serve(__u32 tgid)
{
	struct request_process *process = request_process_of(tgid);

	return tgid && (!process || process->may_serve);
}

/* Paths mean something else now for the calling process. What one looks at that cannot answer, and
 * that was started for no page, is nobody's: somebody from another network on the way in, or the
 * program that sshd runs for each client.
 */
__noinline int observe_other_root(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct kin *process = bpf_map_lookup_elem(&kin, &tgid);
	bool is_foreign = process ? process->bystander && !may_serve(process->starter)
				  : !request_process_of(tgid) && !holds_listener();

	if (!is_foreign)
		change_slot(SLOT_EVERYTHING);
	return 0;
}

/* struct iocb: what is asked for, and of which descriptor. */
#define IOCB_WHAT_AT 16
#define IOCB_CMD_PWRITE 1
#define IOCB_CMD_PWRITEV 8

struct iocb_what {
	__u16 opcode;
	__s16 priority;
	__s32 fd;
};

/* One request of an asynchronous call. Who sends by one is not followed any longer. */
static long look_at_submitted(__u32 index, struct call *call)
{
	struct iocb_what what = {};
	__u64 request;

	if (bpf_probe_read_user(&request, sizeof(request),
				(const __u64 *)call->args[2] + index) ||
	    bpf_probe_read_user(&what, sizeof(what), (const void *)(request + IOCB_WHAT_AT))) {
		report_descriptor(EVENT_HIDDEN, NR_io_submit, 0, -1);
		return 1;
	}
	if (what.opcode != IOCB_CMD_PWRITE && what.opcode != IOCB_CMD_PWRITEV)
		return 0;
	if (kind_of_file(file_of(bpf_get_current_task_btf(), what.fd)) == S_IFREG)
		report_written(what.fd, NR_io_submit);
	else
		report_descriptor(EVENT_HIDDEN, NR_io_submit, 0, -1);
	return 0;
}

/* Those that the kernel has taken. */
__noinline int observe_submitted(struct call *call)
{
	struct call submitted;

	if (!call || call->ret <= 0)
		return 0;
	submitted = *call;
	bpf_loop(submitted.ret, look_at_submitted, &submitted, 0);
	return 0;
}

/* What the server does. */
__noinline int observe_server(struct call *call)
{
	struct transfer transfer = {};
	__u64 nr;
	__s64 ret;
	int fd;

	if (!call)
		return 0;
	nr = call->nr;
	ret = call->ret;
	switch (nr) {
	case NR_open:
	case NR_creat:
	case NR_openat:
	case NR_openat2:
		return observe_opened(call);
	case NR_accept:
	case NR_accept4:
		return ret >= 0 ? observe_accepted(ret) : 0;
	case NR_read:
	case NR_readv:
	case NR_recvfrom:
	case NR_recvmsg:
		return ret > 0 && is_transfer(call, call->args[0], &transfer)
			       ? observe_request(&transfer)
			       : 0;
	case NR_getdents:
	case NR_getdents64:
		return report_descriptor(EVENT_READDIR, nr, ret, call->args[0]);
	case NR_io_submit:
		return observe_submitted(call);
	case NR_sendfile:
		if (ret > 0)
			report_descriptor(EVENT_SENDFILE, nr, ret, call->args[1]);
		/* And to somebody. */
	case NR_splice:
	case NR_copy_file_range:
	case NR_write:
	case NR_pwrite64:
	case NR_writev:
	case NR_pwritev:
	case NR_pwritev2:
	case NR_sendto:
	case NR_sendmsg:
	case NR_sendmmsg:
		if (ret <= 0)
			return 0;
		fd = nr == NR_splice || nr == NR_copy_file_range ? call->args[2] : call->args[0];
		return is_transfer(call, fd, &transfer) ? report_sent(&transfer)
							: report_written(fd, nr);
	case NR_io_uring_setup:
	case NR_open_by_handle_at:
		/* One that fails is a look at what the kernel has, or at nothing. */
		return ret >= 0 ? report_descriptor(EVENT_HIDDEN, nr, ret, -1) : 0;
	case NR_chdir:
	case NR_fchdir:
		return observe_moved(call);
	case NR_chroot:
	case NR_setns:
	case NR_unshare:
		return ret < 0 ? 0 : observe_other_root();
	case NR_listen:
		return ret < 0 ? 0 : observe_listening();
	}
	observe_looked(call);
	return observe_changed(call);
}

#endif
