/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Which request a process of the server works on. Included by witness.bpf.c.
 *
 * Read first: truth/watch/src/attribution/requests.rs (what is made of it, and why what is missed
 * here makes a source set larger, never smaller).
 *
 * A process is followed as long as it has one thread and one connection at a time: the last one
 * that it has accepted, or that it reads from a client of the web server. When the next one comes,
 * the last one must be closed. A process that is found to have two at once, or that could be handed
 * descriptors by others, is no longer followed.
 *
 * Of what such a process sends while it executes a FastCGI request, the first on each of two
 * sockets in turn is told: its reply, and another. And the short reads of FastCGI, headers mostly,
 * are told with the next one, but for those with which a request begins or is known.
 */
#ifndef NICACHE_REQUESTS_H
#define NICACHE_REQUESTS_H

/* A longer read is told of without its bytes. */
#define REQUEST_BYTES 4096

/* What is spoken on a connection. */
#define SPEAKS_UNKNOWN 0
#define SPEAKS_FASTCGI 1
#define SPEAKS_HTTP 2
#define SPEAKS_OTHER 3

#define FASTCGI_HEADER_BYTES 8
#define FASTCGI_END_BYTES 16
#define FASTCGI_BEGIN 1
#define FASTCGI_END 3

struct request_process {
	__u64 ino; /* the connection's socket */
	/* by which other socket, and to whom, it has last sent in this execution; mixed into one
	 * number
	 */
	__u64 told;
	__u64 kept[PREFIX_BYTES / 8]; /* bytes that have not been told yet */
	__s32 fd;
	__u8 kept_len;
	__u8 speaks;
	__u8 concurrent;
	__u8 executes; /* a FastCGI request has begun and not ended */
	__u8 replied;  /* it has sent something of its reply */
	__u8 writes_unseen; /* it has opened a file to write to, and what it writes is not seen */
	__u8 may_serve; /* a connection of it may have had to do with a page */
};

/* An entry stays until its process ends, so nothing is forgotten of it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct request_process);
} request_processes SEC(".maps");

/* The IPv4 address in an IPv4-mapped IPv6 address; 127.0.0.1 for ::1; 0: another. */
static __always_inline __u32 unwrap_ipv6(const struct in6_addr *from)
{
	__u32 words[4] = {};

	bpf_probe_read_kernel(words, sizeof(words), from);
	if (!words[0] && !words[1] && words[2] == __builtin_bswap32(0xffff))
		return words[3];
	if (!words[0] && !words[1] && !words[2] && words[3] == __builtin_bswap32(1))
		return __builtin_bswap32(0x7f000001);
	return 0;
}

/* IPv4 address of the other end, in the network's byte order; 0: none. */
static __always_inline __u32 peer_address(struct sock *sk)
{
	__u16 family = FIELD(struct sock, sk, __sk_common.skc_family);

	if (family == AF_INET)
		return FIELD(struct sock, sk, __sk_common.skc_daddr);
	return family == AF_INET6 ? unwrap_ipv6(&sk->__sk_common.skc_v6_daddr) : 0;
}

/* An IPv6 address in 32 bits, as the card folds it: the exclusive or of its words; one of IPv4 in
 * that is mapped there is itself.
 */
static __always_inline __u32 fold_ipv6(const struct in6_addr *from)
{
	__u32 words[4] = {};
	__u32 unwrapped = unwrap_ipv6(from);

	if (unwrapped)
		return unwrapped;
	bpf_probe_read_kernel(words, sizeof(words), from);
	return words[0] ^ words[1] ^ words[2] ^ words[3];
}

/* Who a client is, in the network's byte order; 0: unknown. Two may look alike: then the source set
 * is larger.
 */
static __always_inline __u32 client_address(struct sock *sk)
{
	__u16 family = FIELD(struct sock, sk, __sk_common.skc_family);

	if (family == AF_INET)
		return FIELD(struct sock, sk, __sk_common.skc_daddr);
	return family == AF_INET6 ? fold_ipv6(&sk->__sk_common.skc_v6_daddr) : 0;
}

static __always_inline __u32 local_address(struct sock *sk)
{
	__u16 family = FIELD(struct sock, sk, __sk_common.skc_family);

	if (family == AF_INET)
		return FIELD(struct sock, sk, __sk_common.skc_rcv_saddr);
	return family == AF_INET6 ? fold_ipv6(&sk->__sk_common.skc_v6_rcv_saddr) : 0;
}

__noinline int report_request(__u64 what, __u64 ino, __u64 peer, __u64 flags)
{
	struct event_head *head = bpf_ringbuf_reserve(&lookups, sizeof(*head), 0);

	if (!head) {
		count_lost();
		return 0;
	}
	fill_head(head, EVENT_REQUEST, 0, 0, -1);
	head->ino = ino;
	head->dev = what;
	head->dir_ino = peer;
	head->flags = flags;
	bpf_ringbuf_submit(head, BPF_RB_NO_WAKEUP);
	return 0;
}

/* The calling process has started another. */
__noinline int report_started(__u32 child, __u32 starter)
{
	return starter ? report_request(REQUEST_STARTED, child, starter, 0) : 0;
}

static __always_inline struct request_process *request_process_of(__u32 tgid)
{
	return bpf_map_lookup_elem(&request_processes, &tgid);
}

/* Has the process taken a connection? 2: and it executes a FastCGI request. */
static __always_inline __u32 answers(__u32 tgid)
{
	struct request_process *process = request_process_of(tgid);

	return process ? 1 + (process->executes && !process->concurrent) : 0;
}

static __always_inline struct request_process *add_request_process(__u32 tgid)
{
	struct request_process fresh = {};

	/* A process for which there is no room is not followed at all. */
	bpf_map_update_elem(&request_processes, &tgid, &fresh, BPF_NOEXIST);
	return request_process_of(tgid);
}

/* One whose bytes are all in one place. */
static __always_inline bool is_plain_read(struct transfer *transfer)
{
	return transfer->nr == NR_read || transfer->nr == NR_recvfrom;
}

/* May a connection have to do with a page? One that has come from another machine to another port
 * than the web server's has not: sshd's.
 */
static __always_inline bool may_be_for_a_page(struct file *file)
{
	void *socket = file ? FIELD(struct file, file, private_data) : 0;
	struct sock *sk = socket ? FIELD(struct socket, socket, sk) : 0;
	__u32 address;
	__u16 family;

	if (!sk)
		return true;
	family = FIELD(struct sock, sk, __sk_common.skc_family);
	if ((family != AF_INET && family != AF_INET6) ||
	    is_service_port(FIELD(struct sock, sk, __sk_common.skc_num)))
		return true;
	address = client_address(sk);
	return !address || address == local_address(sk) ||
	       (__builtin_bswap32(address) >> 24) == 127;
}

/* The calling process has another connection. Not static, and so the next ones: the verifier looks
 * at such functions once.
 */
__noinline int note_connection(int fd, __u64 ino)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 tgid = task->tgid;
	struct request_process *process = request_process_of(tgid);

	note_started(tgid);
	if (!process)
		process = add_request_process(tgid);
	if (!process)
		return 0;
	/* A program outside the server's network is asked from another one. */
	if (!is_inside(task) || may_be_for_a_page(file_of(task, fd)))
		process->may_serve = 1;
	if (process->concurrent)
		return 0;
	if (task->signal->nr_threads > 1)
		process->concurrent = 1;
	if (process->ino && process->ino != ino &&
	    socket_inode(file_of(task, process->fd)) == process->ino)
		process->concurrent = 1;
	process->ino = ino;
	process->fd = fd;
	process->speaks = SPEAKS_UNKNOWN;
	process->kept_len = 0;
	process->executes = 0;
	return report_request(REQUEST_CONNECTION, ino, 0,
			      process->concurrent ? FLAG_CONCURRENT : 0);
}

/* The calling process can be handed descriptors. */
__noinline int note_concurrent(__u64 ino)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct request_process *process = request_process_of(tgid);

	note_started(tgid);
	if (!process)
		process = add_request_process(tgid);
	if (!process)
		return 0;
	process->may_serve = 1;
	if (process->concurrent)
		return 0;
	process->concurrent = 1;
	return report_request(REQUEST_CONNECTION, ino, 0, FLAG_CONCURRENT);
}

__noinline int observe_accepted(int fd)
{
	__u64 ino = socket_inode(file_of(bpf_get_current_task_btf(), fd));

	return ino ? note_connection(fd, ino) : 0;
}

/* `head`: its first bytes, where there are so many and they are known. */
__noinline int report_fastcgi(struct transfer *transfer, struct request_process *process,
			      __u64 head, bool is_known)
{
	struct bytes_report report = {.kind = EVENT_REQUEST, .dev = REQUEST_FASTCGI};
	bool is_whole, is_header = (head & 0xff) == 1;
	__s64 ret;

	if (!transfer || !process)
		return 0;
	ret = transfer->ret;
	is_whole = ret <= REQUEST_BYTES && is_plain_read(transfer) &&
		   (is_known || ret < FASTCGI_HEADER_BYTES);
	if (is_header && (head >> 8 & 0xff) == FASTCGI_BEGIN) {
		process->executes = 1;
		process->replied = 0;
		process->told = 0;
	} else if (is_whole && ret == FASTCGI_HEADER_BYTES &&
		   !(is_header && !(head >> 32 & 0xffff)) && process->kept_len < PREFIX_BYTES) {
		process->kept[process->kept_len ? 1 : 0] = head;
		process->kept_len += FASTCGI_HEADER_BYTES;
		return 0;
	}
	report.ino = transfer->ino;
	report.prefix[0] = process->kept[0];
	report.prefix[1] = process->kept[1];
	report.prefix_len = process->kept_len;
	process->kept_len = 0;
	if (!is_whole && report.prefix_len) {
		/* What is known of it before what is not. */
		report.ret = report.prefix_len;
		report_bytes_tiny(&report);
		report.prefix_len = 0;
	}
	report.ret = ret + report.prefix_len;
	report.flags = is_whole ? 0 : FLAG_INCOMPLETE;
	if (is_whole && ret == FASTCGI_HEADER_BYTES && report.prefix_len < PREFIX_BYTES) {
		report.prefix[report.prefix_len ? 1 : 0] = head;
		report.prefix_len += FASTCGI_HEADER_BYTES;
	} else {
		report.bytes = (const void *)transfer->bytes;
		report.len = is_whole ? ret : 0;
	}
	if (report.len <= 64)
		return report_bytes_tiny(&report);
	if (report.len <= 512)
		return report_bytes_small(&report);
	return report_bytes_medium(&report);
}

/* The server has read from a socket. */
__noinline int observe_request(struct transfer *transfer)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 tgid = task->tgid, address;
	struct request_process *process = request_process_of(tgid);
	struct sock *sk;
	__u64 head = 0, peer = 0;
	bool is_client, is_known = false;

	if (!transfer)
		return 0;
	if (process && process->writes_unseen)
		report_descriptor(EVENT_WROTE, transfer->nr, transfer->ret, -1);
	if (process && process->concurrent)
		return 0;
	is_client = is_inet(transfer) && is_service_port(transfer->port);
	if (!process || process->ino != transfer->ino) {
		if (transfer->nr == NR_recvmsg && transfer->family == AF_UNIX)
			return is_bystander(tgid) ? 0 : note_concurrent(transfer->ino);
		if (!is_client)
			return 0;
		/* It may have come by another way than accept. */
		note_connection(transfer->fd, transfer->ino);
		process = request_process_of(tgid);
		if (!process || process->concurrent || process->ino != transfer->ino)
			return 0;
	}
	if (process->speaks <= SPEAKS_FASTCGI && !is_client && is_plain_read(transfer) &&
	    transfer->ret >= FASTCGI_HEADER_BYTES)
		is_known = !bpf_probe_read_user(&head, sizeof(head), (const void *)transfer->bytes);
	if (process->speaks == SPEAKS_UNKNOWN) {
		process->speaks = is_client ? SPEAKS_HTTP : SPEAKS_OTHER;
		/* Version 1, and the length of what is behind the header: 0, 8. */
		if (!is_client && (head & 0xffff) == (1 | FASTCGI_BEGIN << 8) &&
		    (head >> 32 & 0xffff) == 8 << 8)
			process->speaks = SPEAKS_FASTCGI;
	}
	if (process->speaks == SPEAKS_FASTCGI)
		return report_fastcgi(transfer, process, head, is_known);
	if (process->speaks != SPEAKS_HTTP)
		return 0;
	/* A client on this machine may be the server itself. */
	sk = (struct sock *)transfer->sk;
	address = client_address(sk);
	if (address && address != local_address(sk) && (__builtin_bswap32(address) >> 24) != 127)
		peer = (__u64)__builtin_bswap32(address) << 16 |
		       __builtin_bswap16(FIELD(struct sock, sk, __sk_common.skc_dport));
	return report_request(REQUEST_HTTP, transfer->ino, peer, 0);
}

/* Is what is sent the end of a FastCGI request? */
static __always_inline bool ends_request(struct transfer *transfer, struct request_process *process)
{
	__u8 end[FASTCGI_END_BYTES] = {};

	if (!process || process->ino != transfer->ino || process->speaks != SPEAKS_FASTCGI)
		return false;
	if ((transfer->nr != NR_write && transfer->nr != NR_sendto) ||
	    transfer->ret < FASTCGI_END_BYTES)
		return false;
	if (bpf_probe_read_user(
		    end, sizeof(end),
		    (const void *)(transfer->bytes + transfer->ret - FASTCGI_END_BYTES)))
		return false;
	if (end[0] != 1 || end[1] != FASTCGI_END || end[4] != 0 || end[5] != 8)
		return false;
	process->executes = 0;
	return true;
}

/* Is it known that the execution under way sends by this socket to this peer, whatever number that
 * has?
 */
static __always_inline bool is_told(struct transfer *transfer, struct request_process *process,
				    __u64 peer)
{
	bool is_known;

	if (!process || process->concurrent || !process->executes)
		return false;
	if (transfer->ino == process->ino) {
		is_known = process->replied;
		process->replied = 1;
	} else {
		peer = transfer->ino + peer * 0x9e3779b97f4a7c15ULL;
		is_known = process->told == peer;
		process->told = peer;
	}
	return is_known;
}

/* Its number may be another's soon. */
static __always_inline void forget_request_process(__u32 tgid, bool is_server)
{
	if (!bpf_map_delete_elem(&request_processes, &tgid) || is_server)
		report_request(REQUEST_GONE, 0, 0, 0);
}

#endif
