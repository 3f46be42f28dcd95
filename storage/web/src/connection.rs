//! One connection: requests in order, each with its reply before the next one is looked at.

use std::io::{self, IoSlice, Write as _};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nicache_host::server::reply::Manner;
use nicache_host::server::request::{Parsed, parse};
use nicache_http::KeyConfig;
use nicache_payload::Extent;
use rustix::io::{read, retry_on_intr};

use crate::counts::Counts;
use crate::reply::{Cut, Reply, Source, own_page};

/// How long a client may send nothing, take nothing, or need for a request's head.
pub(crate) const IDLE: Duration = Duration::from_secs(60);
/// Bytes that are asked of the socket at once.
const READ_BYTES: usize = 16 << 10;
/// Most slices by one call (IOV_MAX).
const SLICES_MAX: usize = 1024;

/// Serves until the client goes, or says what nobody can frame.
pub(crate) fn serve(
    stream: &TcpStream,
    source: &Source<'_>,
    keys: &KeyConfig,
    counts: &Counts,
) -> io::Result<()> {
    let mut input: Vec<u8> = Vec::new();
    // Content of a request, which nobody wants.
    let mut skip = 0_u64;
    let mut begun = Instant::now();
    loop {
        let skipped = skip.min(input.len() as u64) as usize;
        input.drain(..skipped);
        skip -= skipped as u64;
        let parsed =
            if skip > 0 || input.is_empty() { Parsed::Partial } else { parse(&input, keys) };
        let (reply, len, body, keep_alive) = match parsed {
            Parsed::Partial => {
                if input.is_empty() {
                    begun = Instant::now();
                } else if begun.elapsed() > IDLE {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                let before = input.len();
                input.resize(before + READ_BYTES, 0);
                let got = retry_on_intr(|| read(stream, &mut input[before..]))?;
                input.truncate(before + got);
                if got == 0 {
                    return Ok(());
                }
                continue;
            }
            Parsed::Lost { status } => {
                let reply = own_page(status, Manner::default(), |_| ());
                let all = input.len();
                (reply, all, 0, false)
            }
            Parsed::Request { len, body, keep_alive, is_old, is_head, asked } => {
                (source.reply(asked, Manner { keep_alive, is_old, is_head }), len, body, keep_alive)
            }
        };
        counts.count(&reply);
        send(stream, source, reply, counts)?;
        if !keep_alive {
            let _ = stream.shutdown(std::net::Shutdown::Write);
            // What is still on its way here would make the kernel reset the connection before the
            // client has read the reply.
            let mut rest = [0; 4096];
            for _ in 0..16 {
                if retry_on_intr(|| read(stream, &mut rest))? == 0 {
                    break;
                }
            }
            return Ok(());
        }
        input.drain(..len);
        skip = body;
    }
}

fn send(stream: &TcpStream, source: &Source<'_>, reply: Reply, counts: &Counts) -> io::Result<()> {
    write_all(stream, reply.head.as_bytes(), &reply.first, counts)?;
    let Some(mut rest) = reply.rest else { return Ok(()) };
    // What the client has is no longer referred to.
    drop(reply.first);
    loop {
        match source.next(&mut rest) {
            Ok(Some(piece)) => write_all(stream, &[], &piece, counts)?,
            Ok(None) => return Ok(()),
            Err(cut) => {
                counts.cut.fetch_add(1, Ordering::Relaxed);
                return Err(match cut {
                    Cut::Changed => io::Error::other("the file changed while a client took it"),
                    Cut::Failed(error) => error,
                });
            }
        }
    }
}

/// Head and content by reference, by as few calls as the socket allows.
fn write_all(
    mut stream: &TcpStream,
    head: &[u8],
    content: &[Extent],
    counts: &Counts,
) -> io::Result<()> {
    let parts = || {
        std::iter::once(head)
            .chain(content.iter().map(|extent| &extent[..]))
            .filter(|part| !part.is_empty())
    };
    let total: usize = parts().map(<[u8]>::len).sum();
    let mut slices: Vec<IoSlice<'_>> = parts().take(SLICES_MAX).map(IoSlice::new).collect();
    let mut written = 0;
    while written < total {
        if written > 0 {
            let mut skip = written;
            slices.clear();
            slices.extend(
                parts()
                    .filter_map(|part| {
                        let gone = skip.min(part.len());
                        skip -= gone;
                        (gone < part.len()).then(|| IoSlice::new(&part[gone..]))
                    })
                    .take(SLICES_MAX),
            );
        }
        match stream.write_vectored(&slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => written += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    counts.content_bytes.fetch_add((total - head.len()) as u64, Ordering::Relaxed);
    Ok(())
}
