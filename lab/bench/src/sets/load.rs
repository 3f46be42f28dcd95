//! Clients that ask for scripts at random moments and do not wait for replies: Poisson arrivals,
//! popularity by Zipf's law.

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nicache_clock::monotonic_ns;
use nicache_random::SplitMix64;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, connect, getsockname, send, socket_with,
};

/// A request that was answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    /// Its script.
    pub script: usize,
    /// The client's end of its connection.
    pub client: SocketAddrV4,
    /// CLOCK_MONOTONIC before it was sent.
    pub forwarded_ns: u64,
    /// CLOCK_MONOTONIC after the whole reply had come.
    pub finished_ns: u64,
    /// It was a success.
    pub ok: bool,
}

/// Uniform numbers and waiting times from a seed.
#[derive(Debug, Clone)]
pub(super) struct Random(SplitMix64);

impl Random {
    /// The numbers of this seed.
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// The next one, 0 to 1 without 1.
    pub(super) fn uniform(&mut self) -> f64 {
        self.0.unit()
    }

    /// A waiting time with this mean, of a Poisson process.
    pub(super) fn wait(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.uniform()).ln())
    }
}

/// Chooses among `0..count`, the first one most often.
#[derive(Debug, Clone)]
pub(super) struct Zipf {
    up_to: Vec<f64>,
}

impl Zipf {
    /// The popularity of the n-th is n to the power of `-alpha`.
    pub(super) fn new(count: usize, alpha: f64) -> Self {
        let mut sum = 0.0;
        let up_to = (1..=count).map(|rank| {
            sum += (rank as f64).powf(-alpha);
            sum
        });
        Self { up_to: up_to.collect() }
    }

    /// One of them.
    pub(super) fn choose(&self, random: &mut Random) -> usize {
        let at = random.uniform() * self.up_to.last().copied().unwrap_or(0.0);
        self.up_to.partition_point(|&up_to| up_to <= at).min(self.up_to.len().saturating_sub(1))
    }
}

struct Pending {
    socket: OwnedFd,
    script: usize,
    client: Option<SocketAddrV4>,
    forwarded_ns: u64,
    head: Vec<u8>,
    sent: bool,
}

/// Sends `requests` of them, one every `mean` on average, each on a connection of its own, and
/// tells of each when its reply has come.
///
/// # Errors
/// The server is not there, or does not answer within half a minute.
pub(super) fn ask(
    server: SocketAddr,
    requests: usize,
    mean: Duration,
    zipf: &Zipf,
    mut random: Random,
    tell: &Sender<Answered>,
) -> Result<()> {
    let mut pending: Vec<Pending> = Vec::new();
    let (mut begun, mut due) = (0, Instant::now());
    let mut progress = Instant::now();
    while begun < requests || !pending.is_empty() {
        while begun < requests && Instant::now() >= due {
            pending.push(begin(server, zipf.choose(&mut random))?);
            begun += 1;
            due += random.wait(mean);
        }
        let until = if begun < requests {
            due.saturating_duration_since(Instant::now())
        } else {
            Duration::from_secs(1)
        };
        let pause =
            Timespec { tv_sec: until.as_secs() as i64, tv_nsec: until.subsec_nanos().into() };
        let ready: Vec<bool> = {
            let wants = |one: &Pending| if one.sent { PollFlags::IN } else { PollFlags::OUT };
            let mut polled: Vec<PollFd<'_>> =
                pending.iter().map(|one| PollFd::new(&one.socket, wants(one))).collect();
            match poll(&mut polled, Some(&pause)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            polled.iter().map(|one| !one.revents().is_empty()).collect()
        };
        for (at, is_ready) in ready.into_iter().enumerate() {
            if is_ready && advance(&mut pending[at])? {
                let done = pending.swap_remove(at);
                // The one that took its place was the last, and is looked at in the next round.
                progress = Instant::now();
                let ok = done.head.starts_with(b"HTTP/1.1 200");
                if let Some(client) = done.client {
                    let Pending { script, forwarded_ns, .. } = done;
                    let _ = tell.send(Answered {
                        script,
                        client,
                        forwarded_ns,
                        finished_ns: monotonic_ns(),
                        ok,
                    });
                }
                break;
            }
        }
        if progress.elapsed() > Duration::from_secs(30) && begun == requests {
            bail!("{} requests are not answered", pending.len());
        }
    }
    Ok(())
}

fn begin(server: SocketAddr, script: usize) -> Result<Pending> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    match connect(&socket, &server) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(Pending { socket, script, client: None, forwarded_ns: 0, head: Vec::new(), sent: false })
}

/// Is the reply whole?
fn advance(one: &mut Pending) -> Result<bool> {
    if !one.sent {
        let SocketAddr::V4(client) = SocketAddr::try_from(getsockname(one.socket.as_fd())?)? else {
            bail!("no IPv4")
        };
        one.client = Some(client);
        let request =
            format!("GET /{}.php HTTP/1.1\r\nHost: sets\r\nConnection: close\r\n\r\n", one.script);
        one.forwarded_ns = monotonic_ns();
        send(&one.socket, request.as_bytes(), SendFlags::NOSIGNAL)?;
        one.sent = true;
        return Ok(false);
    }
    let mut buffer = [0; 4096];
    loop {
        match rustix::io::read(&one.socket, &mut buffer) {
            Ok(0) => return Ok(true),
            Ok(len) if one.head.len() < 16 => one.head.extend_from_slice(&buffer[..len.min(16)]),
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_times_have_the_mean_and_popularity_falls() {
        let (mut random, mean) = (Random::new(7), Duration::from_millis(10));
        let sum: Duration = (0..10_000).map(|_| random.wait(mean)).sum();
        assert!((95..105).contains(&sum.as_secs()), "{sum:?}");
        let zipf = Zipf::new(1000, 0.75);
        let mut counts = vec![0; 1000];
        (0..100_000).for_each(|_| counts[zipf.choose(&mut random)] += 1);
        assert!(counts[0] > counts[9] && counts[9] > counts[500]);
        // By the law: (10 / 1) ^ 0.75 = 5.6.
        let ratio = f64::from(counts[0]) / f64::from(counts[9]);
        assert!((4.5..7.0).contains(&ratio), "{ratio}");
    }
}
