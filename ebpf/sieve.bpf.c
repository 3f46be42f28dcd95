/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Which frames of a link stay with this machine, where a forwarder has all others by AF_XDP
 * sockets: those of neighbours (ARP, neighbour discovery), and TCP and UDP to ports that are kept.
 * What cannot be read is the forwarder's, and so are packets in pieces.
 *
 *   driver ─▶ sieve ─┬─ all others ─▶ AF_XDP socket of the queue
 *                    └─ kept, or a queue without a socket ─▶ the kernel's stack, and packet sockets
 *
 * An entry of the map of sockets goes with its socket: without a process that has one, everything
 * goes to the kernel.
 *
 * Read first: RFC 826, RFC 4861 (neighbours). The same is kept by offload/router/src/guard.rs,
 * behind packet sockets. The other side of the maps is card/xdp/src/sieve.rs.
 *
 * Deliberately absent: extension headers of IPv6. What is behind them is the forwarder's.
 */
#include <linux/bpf.h>

#include "headers.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define ETHERTYPE_ARP 0x0806
#define PROTOCOL_UDP 17
#define NOT_A_FRAGMENT_MASK 0x3fff /* more fragments, offset */
#define IPV4_BYTES_MIN 20

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

static __always_inline bool is_kept_port(__u8 protocol, __be16 port)
{
	__u32 number = bpf_ntohs(port), at = number / PORTS_OF_A_WORD;
	__u64 *word;

	if (protocol == PROTOCOL_UDP)
		at += WORDS_OF_A_PROTOCOL;
	word = bpf_map_lookup_elem(&kept, &at);
	return word && *word >> (number % PORTS_OF_A_WORD) & 1;
}

/* Is what begins at `at` for a port that is kept? */
static __always_inline bool is_kept_transport(struct frame frame, __u32 at, __u8 protocol)
{
	struct ports ports;

	if (protocol != PROTOCOL_TCP && protocol != PROTOCOL_UDP)
		return false;
	return load(frame, at, &ports, sizeof(ports)) && is_kept_port(protocol, ports.to);
}

static __always_inline bool is_kept_ipv4(struct frame frame, __u32 at)
{
	struct ipv4 ip;
	__u32 bytes;

	if (!load(frame, at, &ip, sizeof(ip)) || ip.version_and_length >> 4 != 4)
		return false;
	if (ip.fragment & bpf_htons(NOT_A_FRAGMENT_MASK))
		return false;
	bytes = BOUNDED(ip.version_and_length, 0xf) * 4;
	return bytes >= IPV4_BYTES_MIN && is_kept_transport(frame, at + bytes, ip.protocol);
}

static __always_inline bool is_kept_ipv6(struct frame frame, __u32 at)
{
	struct ipv6 ip;
	__u8 type[2];

	if (!load(frame, at, &ip, sizeof(ip)) ||
	    (ip.version_and_more & bpf_htons(0xf000)) != bpf_htons(0x6000))
		return false;
	at += sizeof(ip);
	if (ip.next != PROTOCOL_ICMPV6)
		return is_kept_transport(frame, at, ip.next);
	return load(frame, at, type, sizeof(type)) && type[0] >= DISCOVERY_FIRST &&
	       type[0] <= DISCOVERY_LAST;
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
