//! Serves a directory over NFS until its standard input ends: `export DIRECTORY [ADDRESS [NAME
//! [WORKERS]]]`. For tries and measurements; all clients are allowed, and root is root.

use std::io::Read;
use std::sync::Arc;

use nicache_nfs::{
    ChunkPool, ClientRule, ExportConfig, HandleKey, Network, Original, Server, ServerConfig, Squash,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which directory?")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:20490".into());
    let name = arguments.next().unwrap_or_else(|| "/export".into());
    let workers = arguments.next().map_or(Ok(16), |workers| workers.parse())?;
    let rule = |network| ClientRule {
        squash: Squash::None,
        needs_reserved_port: false,
        ..ClientRule::new(network)
    };
    let clients = Network::ALL.into_iter().map(rule).collect();
    let export = ExportConfig {
        name,
        path: path.clone().into(),
        is_detached_root: false,
        clients,
        is_sync: false,
    };
    let config = ServerConfig {
        workers,
        ..ServerConfig::new(vec![export], address.parse()?, HandleKey::new([7; 32]))
    };
    let server = Server::start(config, Arc::new(Original::new(ChunkPool::new(64 << 20))))?;
    println!("serving {path} at {}", server.addresses()[0]);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let metrics = server.metrics();
    for procedure in nicache_nfs::protocol::Procedure::ALL {
        let one = metrics.procedure(procedure);
        if one.calls > 0 {
            println!(
                "{:12} {:9} calls {:7} errors  p50 {:9} ns  p99 {:9} ns",
                procedure.name(),
                one.calls,
                one.errors,
                one.latency_ns.value_at_quantile(0.5),
                one.latency_ns.value_at_quantile(0.99)
            );
        }
    }
    println!("{:?}", server.sizes());
    println!(
        "read {} written {} copied {} bytes, {} pauses, {} connections",
        metrics.read_bytes,
        metrics.written_bytes,
        metrics.copied_bytes,
        metrics.pauses,
        metrics.connections
    );
    Ok(())
}
