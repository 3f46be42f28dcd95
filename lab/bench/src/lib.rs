//! Benchmarks of nicache.
//!
//! [`wire`]: a client in one network namespace, a server in another; nginx alone, through the card, and with Varnish in the card's
//! place, measured with `wrk` under the same conditions. What comes out is requests per second,
//! latency and CPU time.
//!
//! [`curves`]: the same over the load: replies and connection times at rising rates, requests per second by the number of connections.
//!
//! [`dynamic`]: the same as [`wire`] for pages that PHP makes and that change now and then, with
//! nginx's own cache as one more; and how many of the replies were stale.
//!
//! [`forward`]: what it costs to forward, beside the kernel, nftables and HAProxy.
//!
//! [`impair`]: the card's TCP sender beside that of Linux over a path that loses, reorders, duplicates and delays packets.
//!
//! [`sets`]: which files a page is made of, by the CacheCard paper's method and by nicache's, and what the answers lead to.
//!
//! [`kim`]: what card memory that the host manages keeps off a bus, and what that is worth: the paper's study, with traces.
//!
//! [`nfs`]: an NFS server on an iSCSI unit whose payload is copied, kept by reference, or left out: the paper's study, with Ganesha beside it.
//!
//! [`pipeline`]: the card alone, between two ports in memory: nanoseconds (and instructions, where the machine counts them) per
//! request of each kind, without kernel, client or server.
//!
//! [`siege`]: the card under attack: floods, clients that take their time, frames that nobody should send; and a client that behaves meanwhile.
//!
//! [`sim`]: how fast traces are played back against policies, and curves made, beside libCacheSim.
//!
//! [`yocum`]: what payload caching is worth to a forwarder: the paper's tables from a model of its machine.

#![forbid(unsafe_code)]

pub mod curves;
pub mod dynamic;
pub mod forward;
pub mod impair;
pub mod kim;
pub mod nfs;
pub mod pipeline;
mod progress;
pub mod sets;
pub mod siege;
pub mod sim;
mod summary;
pub mod wire;
pub mod yocum;

pub use progress::Stop;
pub use summary::Summary;
