//! The settings of `nicache nfs`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use nicache_device::Transport;
use nicache_gateway::{CopyMode, ExportLine, WebLine};
use nicache_initiator::TargetUrl;
use nicache_policy::{ChosenPolicy, PolicyName};

use super::{AdminOptions, LogFormat, Milliseconds, Size};

/// What the help ends with.
pub(crate) const NFS_EXAMPLES: &str = "Examples:
  sudo nicache nfs --demo
  sudo nicache nfs iscsi://10.0.0.5/iqn.2026-11.com.example:disk/1 --mkfs \\
    --export '/data 10.0.0.0/8(rw)'
  sudo nicache nfs iscsi://10.0.0.5,10.0.1.5/iqn.2026-11.com.example:disk/1 --memory 2G \\
    --chap /etc/nicache/chap --export '/data 10.0.0.0/8(rw,sync) *(ro)' \\
    --export '/home=home 10.0.0.7(rw,no_root_squash)'
  sudo nicache nfs iscsi://10.0.0.5/iqn.2026-11.com.example:disk/1 --http 80=/www \\
    --export '/www=www 10.0.0.7(rw)'
  nicache nfs --discover 10.0.0.5

On a client:
  mount -t nfs -o vers=3,proto=tcp,nolock,port=2049,mountport=2049,mountproto=tcp \\
    SERVER:/data /mnt

An export is NAME[=FOLDER] [CLIENT[(OPTION,...)] ...], as in exports(5): FOLDER is a folder of \
the unit (default: all of it), CLIENT an address, a network or *; without one only this machine \
is let in. Options: ro, rw, sync, async, root_squash, no_root_squash, all_squash, anonuid=N, \
anongid=N, secure, insecure. The first client that fits decides.

The unit holds an ext4. It is mounted where no other program of this machine sees it. Ctrl-C or \
SIGTERM writes everything, unmounts and logs out. After a crash, start it again: what COMMIT has \
acknowledged is there, and clients send the rest again.";

fn policy_help() -> String {
    let names = PolicyName::ALL.into_iter().filter_map(ChosenPolicy::new);
    let names: Vec<String> = names.map(|policy| policy.to_string()).collect();
    format!(
        "Which block of --copy nicache goes when the memory is full: {}. With settings as `nicache sim` \
         takes them: s3-fifo:small=5%:ghost=50%",
        names.join(", ")
    )
}

/// Settings of `nicache nfs`.
#[derive(Debug, Clone, Args)]
pub(crate) struct NfsOptions {
    #[allow(
        rustdoc::broken_intra_doc_links,
        reason = "shown as help, where brackets say what may be left out"
    )]
    /// The logical unit: iscsi://HOST[:PORT][,HOST[:PORT]...]/IQN/LUN. With several portals,
    /// another one is tried when one is away
    #[arg(value_name = "UNIT", required_unless_present_any = ["demo", "discover"])]
    pub unit: Option<TargetUrl>,

    /// What clients can mount, and who may: '/data 10.0.0.0/8(rw)'. Repeatable
    #[arg(long, value_name = "EXPORT", required_unless_present_any = ["demo", "discover", "http"])]
    pub export: Vec<ExportLine>,

    /// Serve a folder of the unit by HTTP, too, out of the same cache: 80=/www, 127.0.0.1:8080.
    /// Only files that everybody may read are served; nothing leads out of the folder, and links
    /// are not followed. Repeatable
    #[arg(long, value_name = "[ADDR:]PORT[=FOLDER]")]
    pub http: Vec<WebLine>,

    /// Make a sparse file, serve it by a real target (tgtd), export it to this machine as /demo,
    /// and show how to mount it. It is gone afterwards
    #[arg(long, conflicts_with_all = ["unit", "discover", "mkfs", "chap"])]
    pub demo: bool,

    /// Size of the unit of --demo; it takes room only as it is written
    #[arg(long, value_name = "SIZE", default_value = "1G", requires = "demo")]
    pub demo_size: Size,

    /// Folder for the unit of --demo
    #[arg(long, value_name = "DIR", default_value = "/var/tmp", requires = "demo")]
    pub demo_folder: PathBuf,

    #[allow(
        rustdoc::broken_intra_doc_links,
        reason = "shown as help, where brackets say what may be left out"
    )]
    /// List the targets that these portals know, and end: HOST[:PORT][,HOST[:PORT]...]
    #[arg(long, value_name = "PORTALS", conflicts_with_all = ["unit", "mkfs"])]
    pub discover: Option<String>,

    /// Make an ext4 on the unit first. Only if the unit is empty: if its first or last megabyte is
    /// not all zeroes, nothing is touched
    #[arg(long)]
    pub mkfs: bool,

    /// File with USER:PASSWORD for CHAP, and on a second line the target's USER:PASSWORD if it has
    /// to prove itself. Only root may be able to read it [default: the environment's NICACHE_CHAP,
    /// in the same form]
    #[arg(long, value_name = "FILE")]
    pub chap: Option<PathBuf>,

    /// Name of this initiator, as the target's access list has it
    #[arg(long, value_name = "IQN", default_value = "iqn.2026-11.org.nicache:gateway")]
    pub initiator: String,

    /// Take the unit from another machine's gateway that has reserved it. The target then refuses
    /// that one. Only if its machine is off, or cut off from clients: until it hears of this it may
    /// answer them out of its memory
    #[arg(long, conflicts_with_all = ["demo", "discover", "no_reservation"])]
    pub take_over: bool,

    /// Reserve nothing: a gateway on another machine is not refused, and two destroy the file
    /// system. For targets whose reservations do not work
    #[arg(long)]
    pub no_reservation: bool,

    /// Where NFS and MOUNT are served, both at one TCP port. If given twice, port mappers tell
    /// clients the second one for MOUNT
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:2049")]
    pub listen: Vec<SocketAddr>,

    /// Also be the port mapper, at port 111 of --listen's address by TCP and UDP: clients then need
    /// no port= and mountport=
    #[arg(long)]
    pub portmap: bool,

    /// Register with a port mapper that runs (rpcbind), at 127.0.0.1:111
    #[arg(long, conflicts_with = "portmap")]
    pub register: bool,

    /// Make every change of names and attributes durable before it is answered, for all exports.
    /// Each costs a journal commit. Without it, a crash of this machine may undo the last seconds
    /// of them; what COMMIT has acknowledged is durable in either case
    #[arg(long)]
    pub sync: bool,

    /// Memory for payload: cached, dirty, and on its way to clients
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub memory: Size,

    /// Dirty payload at which files are written back [default: a quarter of --memory]
    #[arg(long, value_name = "SIZE")]
    pub dirty: Option<Size>,

    #[arg(
        long,
        value_name = "NAME[:SETTING=VALUE...]",
        default_value = "lru",
        help = policy_help(),
    )]
    pub policy: ChosenPolicy,

    /// How payload travels: nicache (by reference), original (by the kernel's page cache, as
    /// other servers do), baseline (zeroes instead of payload, to measure the rest; only with
    /// --demo)
    #[arg(long, value_name = "WAY", default_value = "nicache")]
    pub copy: CopyMode,

    /// Block device below the file system: loop (over a file of a FUSE file system), ublk (the
    /// kernel's driver for devices that a program answers: Linux 6.12 and `modprobe ublk_drv`),
    /// auto (ublk where the driver is loaded, else loop)
    #[arg(long, value_name = "KIND", default_value = "loop")]
    pub device: Transport,

    /// Junk is what is asked for: `nicache bench nfs` measures --copy baseline on a unit of its own
    #[arg(long, hide = true)]
    pub measurement: bool,

    /// Threads that execute requests. One that waits for the unit does nothing else
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=256),
    )]
    pub workers: u16,

    /// How long requests wait for a target that is away. Then the gateway ends with an error:
    /// nobody can say what the target still has
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub patience: Milliseconds,

    /// Folder for the secrets of file handles, one for each unit. Without it clients would have to
    /// mount again after each restart
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nicache/nfs")]
    pub state: PathBuf,

    #[command(flatten)]
    pub admin: AdminOptions,

    /// Name of this nicache, by which `status`, `top` and `why` find it [default: nfs0, nfs1, ...]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Announce start and end as lines of JSON; with --discover, print the targets so
    #[arg(long)]
    pub json: bool,

    /// Form of the log on standard error
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::Cli;

    fn error(arguments: &[&str]) -> String {
        let line = ["nicache", "nfs", "--demo"].iter().chain(arguments);
        Cli::try_parse_from(line).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn a_policy_that_no_cache_can_have_is_refused_with_those_that_there_are() {
        for text in ["", "lfru", "LRU,ARC", "../lru", "%n"] {
            let error = error(&["--policy", text]);
            assert!(error.contains("there are fifo, lru, mru"), "{text}: {error}");
        }
        assert!(error(&["--policy", "belady"]).contains("only a simulation can have it"));
        assert!(error(&["--policy", "lirs:hir=500%"]).contains("from 0% to 100%"));
        let help = error(&["--help"]);
        assert!(help.contains("s3-fifo, sieve") && !help.contains("belady"), "{help}");
        let line = ["nicache", "nfs", "--demo", "--policy", "W-TinyLFU:window=5%"];
        assert!(Cli::try_parse_from(line).is_ok());
    }
}
