/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Who asks for what by io_uring, where no system call shows it; and access control lists that no
 * system call sets: through io_uring, and by the kernel's NFS server. Included by witness.bpf.c.
 * All else that io_uring does to a file is seen by the witnesses of its file system.
 *
 * A ring says nothing by being there: programs make one to see whether the kernel has it, and Node
 * has one by which it says what it waits for. A program of the server acts unseen once it asks for
 * more than to wait. Whoever asks is the one that counts, however it has come by the ring: it has
 * made it before the witness was there, or was started with it. What was asked for before is done
 * before any request that is judged, or goes on to take connections and bytes; who answers those
 * has to send.
 *
 * The kernel gives every setxattr of io_uring to a worker thread. It counts when it is given to the
 * worker, and again when it is done: where it completes; for one that does not tell of that
 * (IOSQE_CQE_SKIP_SUCCESS), where the worker ends a transaction for attributes (ext4) or sets the
 * file's change time. On ext4 without a journal nothing shows the end of such a one: what was read
 * between its two moments is bounded by T.
 *
 * Deliberately absent: lists that the kernel's SMB server sets. Its threads are those of everybody.
 */
#ifndef NICACHE_URING_H
#define NICACHE_URING_H

struct io_kiocb {
	__u8 opcode;
} __attribute__((preserve_access_index));

enum io_uring_op { IORING_OP_FSETXATTR, IORING_OP_SETXATTR };

/* When a worker was last given such a request; 0: never. */
__u64 attribute_asked_ns;

/* A worker may be so late. */
#define ATTRIBUTE_NS 10000000000ULL

/* Of linux/io_uring.h, from Linux 6.11 on. */
#define IORING_OP_LISTEN 57

/* What a ring can be asked for that neither finds, reads, writes, sends nor receives anything
 * (IORING_OP_* of linux/io_uring.h).
 */
#define ASKED_FOR(operation) (1ULL << (operation))
#define QUIET_OPERATIONS                                                                           \
	(ASKED_FOR(0) /* NOP */ | ASKED_FOR(3) /* FSYNC */ | ASKED_FOR(6) /* POLL_ADD */ |         \
	 ASKED_FOR(7) /* POLL_REMOVE */ | ASKED_FOR(8) /* SYNC_FILE_RANGE */ |                     \
	 ASKED_FOR(11) /* TIMEOUT */ | ASKED_FOR(12) /* TIMEOUT_REMOVE */ |                        \
	 ASKED_FOR(14) /* ASYNC_CANCEL */ | ASKED_FOR(15) /* LINK_TIMEOUT */ |                     \
	 ASKED_FOR(19) /* CLOSE */ | ASKED_FOR(24) /* FADVISE */ | ASKED_FOR(25) /* MADVISE */ |   \
	 ASKED_FOR(29) /* EPOLL_CTL */ | ASKED_FOR(31) /* PROVIDE_BUFFERS */ |                     \
	 ASKED_FOR(32) /* REMOVE_BUFFERS */)

/* The calling thread, or one that the kernel has for its program, takes a request from a ring.
 * Databases are watched by what they receive.
 */
static __always_inline int observe_asked(struct io_kiocb *request)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u8 operation;

	if (!request)
		return 0;
	operation = request->opcode;
	/* What is asked for is done later, by a worker or after what it is linked to. */
	if (operation == IORING_OP_LISTEN)
		expect_listening();
	if (!is_server(task) || database_kind(task->tgid))
		return 0;
	if (operation < 64 && QUIET_OPERATIONS & ASKED_FOR(operation))
		return 0;
	return report_unseen(NR_io_uring_enter);
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(io_uring_submit_req, struct io_kiocb *request)
{
	return observe_asked(request);
}

/* What it is called before 6.5. */
SEC("tp_btf/io_uring_submit_sqe")
int BPF_PROG(io_uring_submit_sqe, struct io_kiocb *request)
{
	return observe_asked(request);
}

static __always_inline bool sets_attribute(__u8 opcode)
{
	return (bpf_core_enum_value_exists(enum io_uring_op, IORING_OP_SETXATTR) &&
		opcode == bpf_core_enum_value(enum io_uring_op, IORING_OP_SETXATTR)) ||
	       (bpf_core_enum_value_exists(enum io_uring_op, IORING_OP_FSETXATTR) &&
		opcode == bpf_core_enum_value(enum io_uring_op, IORING_OP_FSETXATTR));
}

SEC("tp_btf/io_uring_queue_async_work")
int BPF_PROG(io_uring_queue_async_work, struct io_kiocb *request)
{
	if (request && sets_attribute(request->opcode)) {
		attribute_asked_ns = bpf_ktime_get_ns();
		change_slot(SLOT_EVERYTHING);
	}
	return 0;
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(io_uring_complete, void *context, void *request)
{
	/* Most have never been asked for any. */
	if (attribute_asked_ns && request &&
	    sets_attribute(FIELD(struct io_kiocb, request, opcode)))
		change_slot(SLOT_EVERYTHING);
	return 0;
}

/* The kernel's NFS server: its threads have this name. */
static __always_inline bool is_file_server(struct task_struct *task)
{
	return task->flags & PF_KTHREAD && task->comm[0] == 'n' && task->comm[1] == 'f' &&
	       task->comm[2] == 's' && task->comm[3] == 'd' && !task->comm[4];
}

/* Is it somebody who may set a list without a system call for it? */
static __always_inline bool may_set_unseen(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return (attribute_asked_ns && task->flags & PF_IO_WORKER &&
		bpf_ktime_get_ns() - attribute_asked_ns < ATTRIBUTE_NS) ||
	       is_file_server(task);
}

/* ext4's number for a transaction that sets attributes. */
#define EXT4_HT_XATTR 10

/* A transaction of ext4 is over. */
SEC("tp_btf/jbd2_handle_stats")
int BPF_PROG(jbd2_handle_stats, __u32 dev, __u32 transaction, unsigned int type)
{
	if (type == EXT4_HT_XATTR && may_set_unseen())
		change_slot(SLOT_EVERYTHING);
	return 0;
}

/* The inode is changed: its list, perhaps? */
static __always_inline void change_lists_if_unseen(struct inode *inode)
{
	if (may_set_unseen())
		change_lists(slot_of(device_of(inode), inode->i_ino),
			     (inode->i_mode & S_IFMT) == S_IFDIR,
			     inode->i_sb->s_stack_depth > 0);
}

#endif
