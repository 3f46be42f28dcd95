/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Which frames of two interfaces go to a card that stands between them, and where the others go.
 * Frames of a service flow (service.h) are the card's as long as it is alive; all others, and all
 * if it is not, take the way that was chosen for their interface.
 *
 *   interface ─▶ XDP ──────────▶ tc ingress ─▶ the kernel's stack, or the interface on the other
 *   side
 *                 │ service       ▲  │ service: dropped, because a packet socket has it already
 *                 ▼               │  ▼
 *               AF_XDP socket   packet socket (its filter: service only)
 *
 * Read first: Linux Documentation/networking/af_xdp.rst; packet sockets receive before tc ingress
 * (__netif_receive_skb_core). The Rust side is card/xdp/src/steering.rs; what both sides agree on
 * are the maps below.
 *
 * A card is alive until the time in `heartbeat`, which it moves on again and again. So a card that
 * has died or hangs is passed by when that time is over, without any process having to notice.
 *
 * Before a card begins, probe frames show that frames come to it and go past it
 * (card/xdp/src/probe.rs). Those that are for the card go there whether it is alive or not, and
 * nowhere else.
 *
 * Connections whose sequence numbers it had moved are lost with it: to such a client the server's
 * next bytes would be others, in the place of those that it lacks. Which ones, somebody tells in
 * `lost`; until then (`term`) only connections pass that have begun without a card.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "service.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* CLOCK_MONOTONIC in ns. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} heartbeat SEC(".maps");

#define REST_PASS 0     /* to the kernel's stack */
#define REST_REDIRECT 1 /* out on the other side */
/* For one MAC address: out on the other side. For many: there, and to the stack. Else to the stack.
 */
#define REST_STATION 2

struct way {
	__u32 other; /* index of the interface on the other side */
	__u32 rest;
	__u32 by_packet_socket; /* the card receives by a packet socket */
	__u16 station[3]; /* as on the wire */
	__u16 queues;     /* of AF_XDP sockets */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct way);
} ways SEC(".maps");

/* Frames by what was done with them, for each side. */
struct counts {
	__u64 card, passed, redirected, copied, lost;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

/* Sockets by queue of the interface; sized when loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} wire_sockets SEC(".maps"), host_sockets SEC(".maps");

/* On which of several AF_XDP queues a flow comes from the wire. The network card decides that;
 * packet sockets toward the host follow. Sized when loaded.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow);
	__type(value, __u32);
} flows SEC(".maps");

/* The time from the beginning of one card to that of the next. */
struct term {
	__u32 number;
	__u32 is_lost_known; /* this term's card has ended, and `lost` is complete */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct term);
} term SEC(".maps");

/* Connections that are lost with a card, whatever their VLAN. Sized when loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct flow);
	__type(value, __u32);
} lost SEC(".maps");

/* Connections that have begun while there was no card, with that time: the same one later is
 * another connection.
 */
struct gap {
	__u64 until_ns; /* what `heartbeat` says */
	__u64 term;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct flow);
	__type(value, struct gap);
} begun SEC(".maps");

/* What is asked before steering, of frames from the wire, if it is there: L0 (l0.bpf.c), which goes
 * on with `wire_rest`.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} first SEC(".maps");

#define ETHERTYPE_PROBE 0x88b5 /* local experimental (IEEE 802, table 9-1) */

#define PROBE_CARD 1 /* for the card */
#define PROBE_REST 2 /* goes the way of the others */

/* What tells a probe frame from others of its Ethertype; 0: there are none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} probe SEC(".maps");

/* What is behind the Ethernet header. */
struct mark {
	__u16 key[4];
	__u16 kind; /* in this machine's byte order */
};

static __always_inline bool is_probe(struct frame frame, __u16 kind)
{
	__u32 zero = 0;
	__u64 *key;
	struct mark mark;
	__u16 type;

	if (frame.skb) {
		type = frame.skb->protocol;
	} else if (!load(frame, 12, &type, sizeof(type))) {
		return false;
	}
	if (type != bpf_htons(ETHERTYPE_PROBE))
		return false;
	key = bpf_map_lookup_elem(&probe, &zero);
	if (!key || !*key || !load(frame, ETHERNET_BYTES, &mark, sizeof(mark)) || mark.kind != kind)
		return false;
	return ((__u64)mark.key[3] << 48 | (__u64)mark.key[2] << 32 | (__u64)mark.key[1] << 16 |
		mark.key[0]) == *key;
}

static __always_inline bool is_alive(void)
{
	__u32 zero = 0;
	volatile __u64 *until_ns = bpf_map_lookup_elem(&heartbeat, &zero);

	return until_ns && bpf_ktime_get_ns() < *until_ns;
}

#define COUNT(side, outcome)                                                        \
	({                                                                          \
		__u32 key_ = (side);                                                \
		struct counts *counts_ = bpf_map_lookup_elem(&counts, &key_);       \
		if (counts_)                                                        \
			counts_->outcome++;                                         \
	})

static __always_inline void note_queue(const struct flow *flow, __u32 queue)
{
	__u32 *known = bpf_map_lookup_elem(&flows, flow);

	if (!known || *known != queue)
		bpf_map_update_elem(&flows, flow, &queue, BPF_ANY);
}

static __always_inline int at_driver(struct xdp_md *xdp, enum side side, void *sockets)
{
	struct frame frame = { .xdp = xdp };
	struct segment segment;
	enum verdict verdict;
	__u32 key = side;
	struct way *way;
	int action;

	if (is_probe(frame, PROBE_CARD)) {
		verdict = ERROR; /* no flow's */
	} else {
		if (!is_alive())
			return XDP_PASS;
		verdict = verdict_of(frame, side, &segment);
		if (verdict == OTHER)
			return XDP_PASS;
	}
	way = bpf_map_lookup_elem(&ways, &key);
	if (!way)
		return XDP_PASS;
	/* A queue that never had a socket leaves it to tc; the socket of a card that has just ended
	 * is gone.
	 */
	action = bpf_redirect_map(sockets, xdp->rx_queue_index,
				  xdp->rx_queue_index < way->queues ? XDP_DROP : XDP_PASS);
	if (action == XDP_REDIRECT) {
		/* Errors come from elsewhere, by a queue of their own. */
		if (verdict == SERVICE && way->queues > 1)
			note_queue(&segment.flow, xdp->rx_queue_index);
		COUNT(side, card);
	}
	return action;
}

/* Is this, while there is no card, a segment of a connection that is lost with it? A client that
 * begins anew has another one.
 */
static __always_inline bool is_lost(struct frame frame, enum side side)
{
	__u32 zero = 0;
	__u64 *until_ns = bpf_map_lookup_elem(&heartbeat, &zero);
	struct term *now = bpf_map_lookup_elem(&term, &zero);
	struct gap gap = {}, *when;
	struct segment segment;
	__u16 flags;

	if (verdict_of(frame, side, &segment) != SERVICE ||
	    !load(frame, segment.at + 12, &flags, sizeof(flags)))
		return false;
	if (!until_ns || !now)
		return false;
	gap.until_ns = *until_ns;
	gap.term = now->number;
	if (side == WIRE && (flags & bpf_htons(TCP_SYN | TCP_ACK)) == bpf_htons(TCP_SYN)) {
		bpf_map_update_elem(&begun, &segment.flow, &gap, BPF_ANY);
		bpf_map_delete_elem(&lost, &segment.flow);
		return false;
	}
	if (now->is_lost_known)
		return bpf_map_lookup_elem(&lost, &segment.flow);
	when = bpf_map_lookup_elem(&begun, &segment.flow);
	return !when || when->until_ns != gap.until_ns || when->term != gap.term;
}

static __always_inline int at_socket(struct __sk_buff *skb, enum side side)
{
	struct frame frame = { .skb = skb };

	if (is_probe(frame, PROBE_CARD))
		return -1;
	/* The whole frame, or nothing. */
	return is_alive() && is_of_service(frame, side) ? -1 : 0;
}

/* Behind generic XDP, whoever's it is, Linux from 6.9 on forgets the length of the Ethernet header
 * of frames that it had to copy (`mac_len`; skb_pp_cow_data). Then the frame seems to begin with
 * the network header, and would be sent without the other one.
 */
static __always_inline void find_header(struct __sk_buff *skb)
{
	__u32 linear = skb->data_end - skb->data;
	__u8 header[ETHERNET_BYTES];

	/* So many bytes behind the Ethernet header's first there is none, if the frame begins
	 * there.
	 */
	if (bpf_skb_load_bytes_relative(skb, linear, header, 1, BPF_HDR_START_MAC) ||
	    bpf_skb_load_bytes_relative(skb, 0, header, sizeof(header), BPF_HDR_START_MAC))
		return;
	/* This clears the header's place and counts it in. */
	if (bpf_skb_change_head(skb, sizeof(header), 0) == 0)
		bpf_skb_store_bytes(skb, 0, header, sizeof(header), 0);
}

static __always_inline int at_ingress(struct __sk_buff *skb, enum side side)
{
	struct frame frame = { .skb = skb };
	__u32 key = side;
	struct way *way = bpf_map_lookup_elem(&ways, &key);
	__u16 to[3];

	if (!way)
		return TC_ACT_UNSPEC;
	find_header(skb);
	if (is_probe(frame, PROBE_CARD))
		return TC_ACT_SHOT;
	if (is_alive()) {
		if (way->by_packet_socket && is_of_service(frame, side)) {
			COUNT(side, card);
			return TC_ACT_SHOT;
		}
	} else if (is_lost(frame, side)) {
		COUNT(side, lost);
		return TC_ACT_SHOT;
	}
	if (way->rest == REST_STATION && bpf_skb_load_bytes(skb, 0, to, sizeof(to)) == 0) {
		if (to[0] & bpf_htons(0x0100)) {
			COUNT(side, copied);
			bpf_clone_redirect(skb, way->other, 0);
			return TC_ACT_UNSPEC;
		}
		if (to[0] == way->station[0] && to[1] == way->station[1] &&
		    to[2] == way->station[2]) {
			COUNT(side, redirected);
			return bpf_redirect(way->other, 0);
		}
	}
	if (way->rest == REST_REDIRECT) {
		COUNT(side, redirected);
		return bpf_redirect(way->other, 0);
	}
	COUNT(side, passed);
	/* Other programs at this place, if there are any, go on. */
	return TC_ACT_UNSPEC;
}

SEC("xdp.frags")
int wire_driver(struct xdp_md *xdp)
{
	if (is_alive())
		bpf_tail_call(xdp, &first, 0);
	return at_driver(xdp, WIRE, &wire_sockets);
}

SEC("xdp.frags")
int wire_rest(struct xdp_md *xdp)
{
	return at_driver(xdp, WIRE, &wire_sockets);
}

SEC("xdp.frags")
int host_driver(struct xdp_md *xdp)
{
	return at_driver(xdp, HOST, &host_sockets);
}

SEC("socket")
int wire_filter(struct __sk_buff *skb)
{
	return at_socket(skb, WIRE);
}

SEC("socket")
int host_filter(struct __sk_buff *skb)
{
	return at_socket(skb, HOST);
}

/* Which of several packet sockets toward the host gets a frame: that with the number of the flow's
 * queue toward the wire.
 */
SEC("socket")
int host_queue(struct __sk_buff *skb)
{
	struct frame frame = { .skb = skb, .starts_at_network = true };
	struct segment segment;
	__u32 *queue;

	if (verdict_of(frame, HOST, &segment) == OTHER)
		return 0;
	queue = bpf_map_lookup_elem(&flows, &segment.flow);
	return queue ? *queue : 0;
}

SEC("tc")
int wire_ingress(struct __sk_buff *skb)
{
	return at_ingress(skb, WIRE);
}

SEC("tc")
int host_ingress(struct __sk_buff *skb)
{
	return at_ingress(skb, HOST);
}

/* Has a copy of the frame come in by an interface. Run by BPF_PROG_TEST_RUN. */
static __always_inline int inject(struct __sk_buff *skb, enum side other)
{
	__u32 key = other;
	struct way *way = bpf_map_lookup_elem(&ways, &key);

	return way ? bpf_clone_redirect(skb, way->other, BPF_F_INGRESS) : -1;
}

SEC("tc")
int wire_inject(struct __sk_buff *skb)
{
	return inject(skb, HOST);
}

SEC("tc")
int host_inject(struct __sk_buff *skb)
{
	return inject(skb, WIRE);
}

/* What a socket that watches an interface sees of probe frames. */
SEC("socket")
int probe_filter(struct __sk_buff *skb)
{
	struct frame frame = { .skb = skb };

	return is_probe(frame, PROBE_REST) ? -1 : 0;
}
