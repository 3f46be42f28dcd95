/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Which frames of a link stay with this machine, where a forwarder has all others by AF_XDP
 * sockets: those of neighbours (ARP, neighbour discovery), and at this machine's own addresses TCP
 * and UDP to ports that are kept, and errors about what such a port has sent. The same ports at
 * other addresses are those of connections through the forwarder. What cannot be read is the
 * forwarder's, and so are packets in pieces.
 *
 *   driver ─▶ sieve ─┬─ all others ─▶ AF_XDP socket of the queue
 *                    └─ kept, or a queue without a socket ─▶ the kernel's stack, and packet sockets
 *
 * An entry of the map of sockets goes with its socket: without a process that has one, everything
 * goes to the kernel.
 *
 * Read first: RFC 826, RFC 4861 (neighbours); RFC 792, RFC 4443 (errors). The same is kept by
 * offload/router/src/guard.rs, behind packet sockets. The other side of the maps is
 * card/xdp/src/sieve.rs.
 *
 * Deliberately absent: extension headers of IPv6. What is behind them is the forwarder's.
 */
#include <linux/bpf.h>

#include "headers.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define ETHERTYPE_ARP 0x0806
#define PROTOCOL_UDP 17
#define NOT_A_FRAGMENT_MASK 0x3fff /* more fragments, offset */
#define OFFSET_MASK 0x1fff
#define IPV4_BYTES_MIN 20
/* Of an error, before the packet that it is about. */
#define ICMP_BYTES 8

/* Router solicitation to redirect. */
#define DISCOVERY_FIRST 133
#define DISCOVERY_LAST 137

/* By queue of the link; sized when loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} sockets SEC(".maps");

#define PORTS_OF_A_WORD 64
#define WORDS_OF_A_PROTOCOL (65536 / PORTS_OF_A_WORD)

/* A bit for each port that is kept: those of TCP, then those of UDP. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * WORDS_OF_A_PROTOCOL);
	__type(key, __u32);
	__type(value, __u64);
} kept SEC(".maps");

#define ADDRESSES_MAX 16384

/* Addresses of this machine. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ADDRESSES_MAX);
	__type(key, struct address);
	__type(value, __u8);
} own SEC(".maps");

struct answered {
	struct address address;
	__be16 port;
	__u16 protocol;
};

/* What the forwarder answers for at kept ports of this machine's addresses. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ADDRESSES_MAX);
	__type(key, struct answered);
	__type(value, __u8);
} answered SEC(".maps");

static __always_inline bool is_kept_port(__u8 protocol, __be16 port)
{
	__u32 number = bpf_ntohs(port), at = number / PORTS_OF_A_WORD;
	__u64 *word;

	if (protocol == PROTOCOL_UDP)
		at += WORDS_OF_A_PROTOCOL;
	word = bpf_map_lookup_elem(&kept, &at);
	return word && *word >> (number % PORTS_OF_A_WORD) & 1;
}

static __always_inline bool is_kept_endpoint(struct address *address, __u8 protocol, __be16 port)
{
	struct answered end = { .address = *address, .port = port, .protocol = protocol };

	return is_kept_port(protocol, port) && bpf_map_lookup_elem(&own, address) &&
	       !bpf_map_lookup_elem(&answered, &end);
}

/* Is what begins at `at` and goes to that address for a port that is kept; or, if it was `sent`
 * from there, from such a port?
 */
static __always_inline bool is_kept_transport(struct frame frame, __u32 at, __u8 protocol,
					      struct address *address, bool sent)
{
	struct ports ports;

	if (protocol != PROTOCOL_TCP && protocol != PROTOCOL_UDP)
		return false;
	if (!load(frame, at, &ports, sizeof(ports)))
		return false;
	return is_kept_endpoint(address, protocol, sent ? ports.from : ports.to);
}

static __always_inline __u32 ipv4_bytes(struct ipv4 *ip)
{
	return BOUNDED(ip->version_and_length, 0xf) * 4;
}

/* Is the error at `at` about a packet that was sent from a port that is kept? */
static __always_inline bool is_kept_error_ipv4(struct frame frame, __u32 at)
{
	struct address address;
	struct ipv4 ip;
	__u32 bytes;

	at += ICMP_BYTES;
	if (!load(frame, at, &ip, sizeof(ip)) || ip.version_and_length >> 4 != 4)
		return false;
	if (ip.fragment & bpf_htons(OFFSET_MASK))
		return false;
	bytes = ipv4_bytes(&ip);
	address = mapped(ip.from);
	return bytes >= IPV4_BYTES_MIN &&
	       is_kept_transport(frame, at + bytes, ip.protocol, &address, true);
}

static __always_inline bool is_error_ipv4(__u8 type)
{
	return type == 3 || type == 11 || type == 12;
}

static __always_inline bool is_kept_ipv4(struct frame frame, __u32 at)
{
	struct address address;
	struct ipv4 ip;
	__u8 type[2];
	__u32 bytes;

	if (!load(frame, at, &ip, sizeof(ip)) || ip.version_and_length >> 4 != 4)
		return false;
	if (ip.fragment & bpf_htons(NOT_A_FRAGMENT_MASK))
		return false;
	bytes = ipv4_bytes(&ip);
	if (bytes < IPV4_BYTES_MIN)
		return false;
	at += bytes;
	address = mapped(ip.to);
	if (ip.protocol != PROTOCOL_ICMP)
		return is_kept_transport(frame, at, ip.protocol, &address, false);
	return bpf_map_lookup_elem(&own, &address) && load(frame, at, type, sizeof(type)) &&
	       is_error_ipv4(type[0]) && is_kept_error_ipv4(frame, at);
}

static __always_inline bool is_kept_error_ipv6(struct frame frame, __u32 at)
{
	struct address address;
	struct ipv6 ip;

	at += ICMP_BYTES;
	if (!load(frame, at, &ip, sizeof(ip)) ||
	    (ip.version_and_more & bpf_htons(0xf000)) != bpf_htons(0x6000))
		return false;
	address = joined(ip.from);
	return is_kept_transport(frame, at + sizeof(ip), ip.next, &address, true);
}

/* Unreachable, too big, time exceeded, a problem with a parameter. */
static __always_inline bool is_error_ipv6(__u8 type)
{
	return type >= 1 && type <= 4;
}

static __always_inline bool is_kept_ipv6(struct frame frame, __u32 at)
{
	struct address address;
	struct ipv6 ip;
	__u8 type[2];

	if (!load(frame, at, &ip, sizeof(ip)) ||
	    (ip.version_and_more & bpf_htons(0xf000)) != bpf_htons(0x6000))
		return false;
	at += sizeof(ip);
	address = joined(ip.to);
	if (ip.next != PROTOCOL_ICMPV6)
		return is_kept_transport(frame, at, ip.next, &address, false);
	if (!load(frame, at, type, sizeof(type)))
		return false;
	if (type[0] >= DISCOVERY_FIRST && type[0] <= DISCOVERY_LAST)
		return true;
	return bpf_map_lookup_elem(&own, &address) && is_error_ipv6(type[0]) &&
	       is_kept_error_ipv6(frame, at);
}

static __always_inline bool is_kept(struct frame frame)
{
	__u32 at = 12;
	__be16 type;

	if (!load(frame, at, &type, sizeof(type)))
		return false;
	/* This machine's stack takes out one tag before it looks. */
	if (type == bpf_htons(ETHERTYPE_VLAN) || type == bpf_htons(ETHERTYPE_SERVICE_VLAN)) {
		at += 4;
		if (!load(frame, at, &type, sizeof(type)))
			return false;
	}
	at += 2;
	if (type == bpf_htons(ETHERTYPE_ARP))
		return true;
	if (type == bpf_htons(ETHERTYPE_IPV4))
		return is_kept_ipv4(frame, at);
	return type == bpf_htons(ETHERTYPE_IPV6) && is_kept_ipv6(frame, at);
}

SEC("xdp.frags")
int sieve(struct xdp_md *xdp)
{
	struct frame frame = { .xdp = xdp };

	if (is_kept(frame))
		return XDP_PASS;
	return bpf_redirect_map(&sockets, xdp->rx_queue_index, XDP_PASS);
}
