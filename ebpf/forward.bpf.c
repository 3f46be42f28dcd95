/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * The fast path of `nicache forward`: packets of connections whose way is known go from interface
 * to interface without a process.
 *
 *   interface ─▶ packet socket's filter: choose ─▶ take ─┬─ its way is known: not for the socket ─▶
 *   tc ingress: forward ─▶ other interface
 *                                                        └─ anything else: the card has it
 *
 * Packet sockets receive before tc ingress (__netif_receive_skb_core), on the same CPU and in one
 * go. So the filter decides, and tells the program at tc by `chosen`. Without a socket nobody
 * chooses, and nothing is forwarded here.
 *
 * `take` is reached by a map of programs, of which the forwarder has the only descriptor. The
 * kernel empties such a map when that is closed, so no decision outlives the process that has made
 * it, however that ends.
 *
 * Only what changes no state is taken: TCP segments with ACK and without SYN, FIN, RST and URG,
 * within the windows, and UDP. Whole packets, without options of IP, with hops left, not longer
 * than the next link takes.
 *
 * Connections of services by name have other numbers on either side (card/tcp/src/splice.rs): those
 * of one end are moved by constants, also in what the other end says of them, and windows have
 * other scales. Of these, segments without options of TCP are taken, and those with timestamps
 * alone, as nearly all are. Others, with SACK for example, go up.
 *
 * Read first: RFC 1624; van Rooij 2000 (windows). offload/forward/src/tcp_track.rs has the same
 * rules. offload/fastpath has the other side of the maps.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include "headers.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define PROTOCOL_UDP 17

/* More of TCP's flags than headers.h has. */
#define TCP_FIN 0x01
#define TCP_RST 0x04
#define TCP_URG 0x20

#define NOT_A_FRAGMENT_MASK 0x3fff /* more fragments, offset */
#define VLAN_NUMBER_MASK 0x0fff
#define PACKET_HOST 0
/* All of the frame is for the socket. */
#define WHOLE (-1)
/* How far an acknowledgment may be behind at least. */
#define ACK_BEHIND_MAX 66000

/* How a packet comes in. Nothing is between the fields. */
struct key {
	struct address from, to;
	__be16 from_port, to_port;
	__u16 vlan; /* 0: none */
	__u8 protocol, zero;
	__u32 interface;
};

/* What becomes of it. */
struct way {
	__u64 until_ns; /* CLOCK_MONOTONIC */
	__u32 edition;
	__u32 place; /* in `numbers` and `passed` */
	__u32 direction;
	__u32 interface;
	__u32 mtu;
	__u32 sum; /* of the new addresses, less that of the old ones */
	struct address from, to;
	__be16 from_port, to_port;
	__u16 vlan;
	__u8 macs[12]; /* to, from */
	__u8 is_moved; /* what follows counts */
	__u8 from_scale, to_scale; /* of its window */
	__u8 zero[3];
	/* Added to the fields of TCP. */
	__u32 seq, ack, tsval, tsecr;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct key);
	__type(value, struct way);
} ways SEC(".maps");

/* One end of a connection of TCP. */
struct side {
	__u32 end, max_end, max_window, acked, scale;
	__u32 telling; /* of the second one: how often was told, or the last time that is known */
};

struct numbers {
	struct side sides[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct numbers);
} numbers SEC(".maps");

/* What the forwarder has seen of them. It writes here alone, so nothing that was seen meanwhile is
 * written over.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct numbers);
} told SEC(".maps");

/* What was forwarded here, by direction. */
struct passed {
	struct {
		__u64 last_ns, packets, bytes;
	} directions[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct passed);
} passed SEC(".maps");

struct control {
	__u64 until_ns; /* the forwarder was at work a little before */
	__u32 edition;  /* ways of other editions do not count */
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

/* The way of the packet that this CPU has in its hands. */
struct chosen {
	__u32 is_set;
	__u32 interface, len;
	__u32 packet_len; /* of IP; behind it is padding */
	__u32 is_v6;
	__u32 has_stamps; /* of one that is moved */
	__u32 zero;
	struct key key;
	struct way way;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct chosen);
} chosen SEC(".maps");

/* Packets that were chosen and then not sent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} unsent SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} owner SEC(".maps");

struct tcp {
	__be16 from, to;
	__be32 seq, ack;
	__u8 length, flags;
	__be16 window, checksum, urgent;
};

struct udp {
	__be16 from, to, length, checksum;
};

/* The header of a segment that is moved. */
struct moved {
	__be32 ports, seq, ack;
	__u8 length, flags;
	__be16 window;
	__be32 checksum_and_urgent;
	__be32 stamps; /* two no-operations, kind, length */
	__be32 tsval, tsecr;
};

#define STAMPS 0x0101080a

static __always_inline __u16 folded(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* 0xffff for a header whose checksum is right. */
static __always_inline __u16 sum_of(const struct ipv4 *ip)
{
	const __u16 *halves = (const void *)ip;
	__u32 sum = 0;

#pragma unroll
	for (int half = 0; half < 10; half++)
		sum += halves[half];
	return folded(sum);
}

static __always_inline bool is_before(__u32 a, __u32 b)
{
	return (__s32)(a - b) < 0;
}

/* A window in the scale of the other side, rounded down. */
static __always_inline __u16 rescaled(__u16 window, const struct way *way)
{
	__u32 units = ((__u32)window << (way->from_scale & 15)) >> (way->to_scale & 15);

	return units > 0xffff ? 0xffff : units;
}

/* What is known is never less than what was told, when it was. Numbers turn over every 4 GiB: what
 * was told half a turn ago would seem to be ahead.
 */
static __always_inline void learn(struct side *known, const struct side *told)
{
	if (is_before(known->end, told->end))
		known->end = told->end;
	if (is_before(known->max_end, told->max_end))
		known->max_end = told->max_end;
	if (known->max_window < told->max_window)
		known->max_window = told->max_window;
	if (is_before(known->acked, told->acked))
		known->acked = told->acked;
}

static __always_inline void learn_both(struct numbers *known, const struct numbers *told)
{
	__u32 telling = *(const volatile __u32 *)&told->sides[1].telling;

	if (known->sides[1].telling == telling)
		return;
	learn(&known->sides[0], &told->sides[0]);
	learn(&known->sides[1], &told->sides[1]);
	known->sides[1].telling = telling;
}

/* Whether a segment is within the windows; then they move on. */
static __always_inline bool fits(struct numbers *numbers, __u32 direction, __u32 seq, __u32 ack,
				 __u16 shown, __u32 payload)
{
	struct side *sender = &numbers->sides[direction & 1],
		    *receiver = &numbers->sides[~direction & 1];
	__u32 end = seq + payload;
	__u32 window = (__u32)shown << (sender->scale & 15);
	__u32 behind = sender->max_window > ACK_BEHIND_MAX ? sender->max_window : ACK_BEHIND_MAX;
	__u32 other_end = receiver->end, allowed;

	if (is_before(sender->max_end, seq) || is_before(end, sender->end - receiver->max_window))
		return false;
	if (is_before(other_end, ack) || is_before(ack, other_end - behind))
		return false;

	if (window == 0)
		window = 1; /* it is asked about with one byte */
	if (window > sender->max_window)
		sender->max_window = window;
	if (is_before(sender->end, end))
		sender->end = end;
	if (is_before(sender->max_end, end))
		sender->max_end = end;
	if (is_before(sender->acked, ack))
		sender->acked = ack;
	allowed = ack + window;
	if (is_before(receiver->max_end, allowed))
		receiver->max_end = allowed;
	return true;
}

/* For packet sockets. */
SEC("socket")
int choose(struct __sk_buff *skb)
{
	__u32 first = 0;
	struct chosen *it = bpf_map_lookup_elem(&chosen, &first);

	if (!it)
		return WHOLE;
	it->is_set = 0;
	bpf_tail_call(skb, &owner, 0);
	return WHOLE;
}

SEC("socket")
int take(struct __sk_buff *skb)
{
	__u32 first = 0, at, packet_len, transport_len, headers, payload, segment;
	struct chosen *it = bpf_map_lookup_elem(&chosen, &first);
	struct control *now_valid = bpf_map_lookup_elem(&control, &first);
	struct key key = { .interface = skb->ifindex };
	struct numbers *known, *more;
	struct way *way;
	struct tcp tcp;
	__u64 now;

	if (!it || !now_valid || skb->pkt_type != PACKET_HOST)
		return WHOLE;
	if (skb->vlan_present) {
		if (skb->vlan_proto != bpf_htons(ETHERTYPE_VLAN))
			return WHOLE;
		key.vlan = skb->vlan_tci & VLAN_NUMBER_MASK;
	}

	if (skb->protocol == bpf_htons(ETHERTYPE_IPV4)) {
		struct ipv4 ip;

		if (bpf_skb_load_bytes(skb, ETHERNET_BYTES, &ip, sizeof(ip)))
			return WHOLE;
		packet_len = bpf_ntohs(ip.length);
		if (ip.version_and_length != 0x45 || ip.fragment & bpf_htons(NOT_A_FRAGMENT_MASK) ||
		    ip.hops <= 1 || packet_len < sizeof(ip) || sum_of(&ip) != 0xffff)
			return WHOLE;
		key.protocol = ip.protocol;
		key.from = mapped(ip.from);
		key.to = mapped(ip.to);
		at = ETHERNET_BYTES + sizeof(ip);
		transport_len = packet_len - sizeof(ip);
	} else if (skb->protocol == bpf_htons(ETHERTYPE_IPV6)) {
		struct ipv6 ip;

		if (bpf_skb_load_bytes(skb, ETHERNET_BYTES, &ip, sizeof(ip)))
			return WHOLE;
		transport_len = bpf_ntohs(ip.length);
		if ((ip.version_and_more & bpf_htons(0xf000)) != bpf_htons(0x6000) || ip.hops <= 1)
			return WHOLE;
		key.protocol = ip.next;
		key.from = joined(ip.from);
		key.to = joined(ip.to);
		at = ETHERNET_BYTES + sizeof(ip);
		packet_len = transport_len + sizeof(ip);
	} else {
		return WHOLE;
	}
	if (packet_len + ETHERNET_BYTES > skb->len ||
	    (packet_len + ETHERNET_BYTES < skb->len && skb->gso_size))
		return WHOLE;

	if (key.protocol == PROTOCOL_TCP) {
		if (bpf_skb_load_bytes(skb, at, &tcp, sizeof(tcp)))
			return WHOLE;
		headers = (tcp.length >> 4) * 4;
		if (headers < sizeof(tcp) || headers > transport_len || !(tcp.flags & TCP_ACK) ||
		    tcp.flags & (TCP_SYN | TCP_FIN | TCP_RST | TCP_URG))
			return WHOLE;
		key.from_port = tcp.from;
		key.to_port = tcp.to;
	} else if (key.protocol == PROTOCOL_UDP) {
		struct udp udp;

		if (bpf_skb_load_bytes(skb, at, &udp, sizeof(udp)))
			return WHOLE;
		headers = sizeof(udp);
		if (bpf_ntohs(udp.length) != transport_len)
			return WHOLE;
		key.from_port = udp.from;
		key.to_port = udp.to;
	} else {
		return WHOLE;
	}

	way = bpf_map_lookup_elem(&ways, &key);
	if (!way)
		return WHOLE;
	now = bpf_ktime_get_ns();
	if (way->edition != now_valid->edition || now >= now_valid->until_ns ||
	    now >= way->until_ns)
		return WHOLE;
	segment = skb->gso_size ? at - ETHERNET_BYTES + headers + skb->gso_size : packet_len;
	if (segment > way->mtu)
		return WHOLE;
	it->has_stamps = 0;
	if (key.protocol == PROTOCOL_TCP) {
		__u32 place = way->place, seq = bpf_ntohl(tcp.seq), ack = bpf_ntohl(tcp.ack);
		__u16 window = bpf_ntohs(tcp.window);

		if (way->is_moved) {
			if (headers != sizeof(tcp)) {
				__be32 kind;

				if (headers != sizeof(struct moved))
					return WHOLE;
				if (bpf_skb_load_bytes(skb, at + sizeof(tcp), &kind,
						       sizeof(kind)) ||
				    kind != bpf_htonl(STAMPS))
					return WHOLE;
				it->has_stamps = 1;
			}
			/* Numbers are kept as who has answered sees them. */
			if (way->direction == 0) {
				seq += way->seq;
				ack += way->ack;
				window = rescaled(window, way);
			}
		}
		known = bpf_map_lookup_elem(&numbers, &place);
		more = bpf_map_lookup_elem(&told, &place);
		if (!known || !more)
			return WHOLE;
		learn_both(known, more);
		payload = transport_len - headers;
		if (!fits(known, way->direction, seq, ack, window, payload))
			return WHOLE;
	}

	it->interface = skb->ifindex;
	it->len = skb->len;
	it->packet_len = packet_len;
	it->is_v6 = at != ETHERNET_BYTES + sizeof(struct ipv4);
	it->key = key;
	it->way = *way;
	it->is_set = 1;
	return 0;
}

/* Writes the IP header. False: the packet is not the one that was chosen, or there is no memory. */
static __always_inline bool rewrite_ipv4(struct __sk_buff *skb, const struct chosen *it)
{
	struct ipv4 ip;

	if (bpf_skb_load_bytes(skb, ETHERNET_BYTES, &ip, sizeof(ip)))
		return false;
	if (ip.from != it->key.from.words[3] || ip.to != it->key.to.words[3] || ip.hops <= 1)
		return false;
	ip.hops--;
	ip.from = it->way.from.words[3];
	ip.to = it->way.to.words[3];
	ip.checksum = 0;
	ip.checksum = ~sum_of(&ip);
	return bpf_skb_store_bytes(skb, ETHERNET_BYTES, &ip, sizeof(ip), 0) == 0;
}

static __always_inline bool rewrite_ipv6(struct __sk_buff *skb, const struct chosen *it)
{
	struct {
		__u16 halves[20];
	} ip;
	const __u16 *new = (const void *)&it->way.from;
	__u8 *hops = (__u8 *)&ip.halves[3] + 1;

	if (bpf_skb_load_bytes(skb, ETHERNET_BYTES, &ip, sizeof(ip)))
		return false;
	if (*hops <= 1)
		return false;
	*hops -= 1;
#pragma unroll
	for (int half = 0; half < 16; half++)
		ip.halves[4 + half] = new[half];
	/* A sum of the whole packet that a network card has told stays right: it takes the
	 * addresses from here, and from the line that brings the checksum up to date their
	 * opposite.
	 */
	return bpf_skb_store_bytes(skb, ETHERNET_BYTES, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM) == 0;
}

static __always_inline __be32 plus(__be32 number, __u32 delta)
{
	return bpf_htonl(bpf_ntohl(number) + delta);
}

/* Moves the numbers of a segment. */
static __always_inline bool move(struct __sk_buff *skb, const struct chosen *it, __u32 at)
{
	struct moved old = {}, new;
	__s64 difference;

	if (it->has_stamps ? bpf_skb_load_bytes(skb, at, &old, sizeof(old))
			   : bpf_skb_load_bytes(skb, at, &old, sizeof(struct tcp)))
		return false;
	new = old;
	new.seq = plus(old.seq, it->way.seq);
	new.ack = plus(old.ack, it->way.ack);
	new.window = bpf_htons(rescaled(bpf_ntohs(old.window), &it->way));
	if (it->has_stamps) {
		new.tsval = plus(old.tsval, it->way.tsval);
		new.tsecr = plus(old.tsecr, it->way.tsecr);
	}
	difference = bpf_csum_diff((__be32 *)&old, sizeof(old), (__be32 *)&new, sizeof(new), 0);
	/* The checksum is not changed by this, and is brought up to date afterwards. */
	if (difference < 0 ||
	    (it->has_stamps ? bpf_skb_store_bytes(skb, at, &new, sizeof(new), 0)
			    : bpf_skb_store_bytes(skb, at, &new, sizeof(struct tcp), 0)))
		return false;
	return bpf_l4_csum_replace(skb, at + 16, 0, difference, 0) == 0;
}

static __always_inline bool rewrite(struct __sk_buff *skb, const struct chosen *it)
{
	bool is_udp = it->key.protocol == PROTOCOL_UDP;
	__u64 kind = is_udp ? BPF_F_MARK_MANGLED_0 : 0; /* 0 means "no checksum" (RFC 768) */
	__u32 at = ETHERNET_BYTES + (it->is_v6 ? sizeof(struct ipv6) : sizeof(struct ipv4));
	__u32 checksum_at = at + (is_udp ? 6 : 16);
	struct ports old, new = { it->way.from_port, it->way.to_port };
	__u32 old_word, new_word;

	if (bpf_skb_load_bytes(skb, at, &old, sizeof(old)))
		return false;
	if (old.from != it->key.from_port || old.to != it->key.to_port)
		return false;
	if (skb->len > it->packet_len + ETHERNET_BYTES &&
	    bpf_skb_change_tail(skb, it->packet_len + ETHERNET_BYTES, 0))
		return false;
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return false;
	/* A field that has the sum of the pseudo-header alone is brought up to date by the
	 * addresses and not by the ports: the kernel knows.
	 */
	if (it->way.sum &&
	    bpf_l4_csum_replace(skb, checksum_at, 0, it->way.sum, BPF_F_PSEUDO_HDR | kind))
		return false;
	__builtin_memcpy(&old_word, &old, sizeof(old));
	__builtin_memcpy(&new_word, &new, sizeof(new));
	if (old_word != new_word) {
		if (bpf_l4_csum_replace(skb, checksum_at, old_word, new_word,
					sizeof(old_word) | kind) ||
		    bpf_skb_store_bytes(skb, at, &new, sizeof(new), 0))
			return false;
	}
	if (it->way.is_moved && !move(skb, it, at))
		return false;
	if (it->is_v6 ? !rewrite_ipv6(skb, it) : !rewrite_ipv4(skb, it))
		return false;
	if (bpf_skb_store_bytes(skb, 0, it->way.macs, sizeof(it->way.macs), 0))
		return false;
	return !it->way.vlan ||
	       bpf_skb_vlan_push(skb, bpf_htons(ETHERTYPE_VLAN), it->way.vlan) == 0;
}

/* For tc ingress. */
SEC("tc")
int forward(struct __sk_buff *skb)
{
	__u32 first = 0, place, direction;
	struct chosen *it = bpf_map_lookup_elem(&chosen, &first);
	struct passed *counts;
	__u64 *count;

	if (!it || !it->is_set)
		return TC_ACT_UNSPEC;
	it->is_set = 0;
	if (it->interface != skb->ifindex || it->len != skb->len)
		return TC_ACT_UNSPEC;
	if (!rewrite(skb, it)) {
		count = bpf_map_lookup_elem(&unsent, &first);
		if (count)
			__sync_fetch_and_add(count, 1);
		return TC_ACT_SHOT;
	}
	place = it->way.place;
	direction = it->way.direction & 1;
	counts = bpf_map_lookup_elem(&passed, &place);
	if (counts) {
		counts->directions[direction].last_ns = bpf_ktime_get_ns();
		__sync_fetch_and_add(&counts->directions[direction].packets, 1);
		__sync_fetch_and_add(&counts->directions[direction].bytes, it->packet_len);
	}
	return bpf_redirect(it->way.interface, 0);
}
