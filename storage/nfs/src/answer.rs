//! From a request's bytes to its reply's: which program, which caller, executed before or not.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nicache_payload::Extent;

use crate::arguments::Arguments;
use crate::connection::Connection;
use crate::credential::{AUTH_NONE, AUTH_SYS, Claim};
use crate::duplicates::{Admission, CallKey, Duplicates};
use crate::impersonation::Impersonation;
use crate::metrics::Metrics;
use crate::mount::MountRequest;
use crate::portmap;
use crate::procedures::Request;
use crate::protocol::{MOUNT, NFS, PORTMAP, Procedure, Program};
use crate::record::Record;
use crate::rpc::{Call, Refusal, Replies};
use crate::service::{ClientRules, Service};
use crate::xdr::Garbage;

/// Bytes of a WRITE's data at either end that its checksum is made of; its offset, length and file
/// are in it, too.
const SUMMED_DATA_BYTES: usize = 256;

/// Where a call comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    /// The client's address.
    pub peer: SocketAddr,
    /// What the client may use.
    pub rules: &'a ClientRules,
    /// The connection, to send an answer to that another one works for.
    pub connection: Option<&'a Arc<Connection>>,
}

/// One worker's means to answer.
#[derive(Debug)]
pub(crate) struct Answerer<'a> {
    /// What all share.
    pub service: &'a Service,
    /// What was answered before.
    pub duplicates: &'a Duplicates<Arc<Connection>>,
    /// The thread.
    pub thread: &'a mut Impersonation,
    /// What this worker has done. Never held while a request is executed.
    pub metrics: &'a Mutex<Metrics>,
}

impl Answerer<'_> {
    fn metrics(&self) -> MutexGuard<'_, Metrics> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends the reply to a request, unless another one is to answer. An error if it is not a
    /// call, so there is nothing to reply to.
    pub(crate) fn answer(
        &mut self,
        record: Record,
        origin: Origin<'_>,
        replies: &mut Replies,
    ) -> Result<(), Garbage> {
        let call = Call::read(&record.head)?;
        if record.copied_bytes > 0 {
            self.metrics().copied_bytes += record.copied_bytes as u64;
        }
        if let Err(refusal) = self.dispatch(&call, record.data, origin, replies) {
            self.metrics().refused_calls += 1;
            replies.refuse(call.xid, refusal);
        }
        Ok(())
    }

    fn dispatch(
        &mut self,
        call: &Call<'_>,
        data: Vec<Extent>,
        origin: Origin<'_>,
        replies: &mut Replies,
    ) -> Result<(), Refusal> {
        if call.rpc_version != 2 {
            return Err(Refusal::RpcVersion);
        }
        let served: &[Program] =
            if origin.connection.is_some() { &[NFS, MOUNT, PORTMAP] } else { &[PORTMAP] };
        if !served.contains(&call.program) {
            let other = served.iter().find(|program| program.number == call.program.number);
            return Err(
                other.map_or(Refusal::NoProgram, |program| Refusal::NoVersion(program.version))
            );
        }
        // "NULL" is for whoever wants to know whether somebody is there.
        let claim = match call.flavor {
            _ if call.procedure == 0 => Claim::Nobody,
            AUTH_NONE => Claim::Nobody,
            AUTH_SYS => {
                Claim::from_auth_sys(call.credential).map_err(|Garbage| Refusal::BadCredential)?
            }
            _ => return Err(Refusal::TooWeak),
        };
        if call.program == NFS {
            return self.nfs(call, &claim, data, origin, replies);
        }
        self.metrics().other_calls += 1;
        replies.begin(call.xid);
        let done = if call.program == PORTMAP {
            portmap::execute(&self.service.mappings, call.procedure, call.arguments, replies.text())
        } else {
            MountRequest {
                service: self.service,
                thread: self.thread,
                claim: &claim,
                rules: origin.rules,
                peer: origin.peer,
            }
            .execute(call.procedure, call.arguments, replies.text())
        };
        match done {
            Ok(()) => {
                replies.finish();
            }
            Err(_) => replies.forget(),
        }
        done
    }

    fn nfs(
        &mut self,
        call: &Call<'_>,
        claim: &Claim,
        data: Vec<Extent>,
        origin: Origin<'_>,
        replies: &mut Replies,
    ) -> Result<(), Refusal> {
        let begun = Instant::now();
        let procedure = Procedure::from_number(call.procedure).ok_or(Refusal::NoProcedure)?;
        let arguments = Arguments::read(procedure, call.arguments)
            .map_err(|Garbage| Refusal::GarbageArguments)?;
        let key =
            procedure.runs_once().then(|| self.key(call, claim, procedure, &data, origin.peer));
        if let (Some(key), Some(connection)) = (key, origin.connection) {
            match self.duplicates.admit(key, || connection.clone()) {
                Admission::Run => {}
                Admission::Repeat(answer) => {
                    self.metrics().repeated_calls += 1;
                    replies.repeat(&answer);
                    return Ok(());
                }
                Admission::Wait | Admission::Drop => {
                    self.metrics().waiting_calls += 1;
                    return Ok(());
                }
            }
        }
        let written_bytes: usize = data.iter().map(Extent::len).sum();
        let before = replies.len();
        replies.begin(call.xid);
        let mut request =
            Request { service: self.service, thread: self.thread, claim, rules: origin.rules };
        let status = request.execute(&arguments, data, replies);
        let answer = replies.finish();
        if let Some(key) = key {
            let waiting = self.duplicates.complete(key, answer, Instant::now());
            if !waiting.is_empty() {
                let answer = answer.to_vec();
                for connection in waiting {
                    let mut copy = Replies::default();
                    copy.repeat(&answer);
                    connection.send(&mut copy);
                }
            }
        }
        let latency_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut metrics = self.metrics();
        metrics.written_bytes += written_bytes as u64;
        if procedure == Procedure::Read {
            metrics.read_bytes += (replies.len() - before) as u64;
        }
        metrics.record(procedure, status, latency_ns);
        Ok(())
    }

    fn key(
        &self,
        call: &Call<'_>,
        claim: &Claim,
        procedure: Procedure,
        data: &[Extent],
        peer: SocketAddr,
    ) -> CallKey {
        let first =
            data.first().map_or(&[][..], |extent| &extent[..extent.len().min(SUMMED_DATA_BYTES)]);
        let last = data
            .last()
            .map_or(&[][..], |extent| &extent[extent.len().saturating_sub(SUMMED_DATA_BYTES)..]);
        let checksum = self.duplicates.checksum(claim, &[call.arguments, first, last]);
        CallKey { client: peer.ip().to_canonical(), xid: call.xid, procedure, checksum }
    }
}
