//! The HTTP server: one thread for all connections, one that takes samples.
//!
//! ```text
//! mod.rs      what may be bound; threads, their start and end
//! sampler.rs  asks for samples, once for all who look
//! http.rs     connections and their limits (RFC 9112 is hyper's)
//! routes.rs   what there is to ask for
//! reach.rs    whom it is for
//! events.rs   samples as they come (Server-Sent Events, WHATWG HTML section 9.2)
//! ```
//!
//! However many connect, card and supervisor do not notice: connections, their heads, their times
//! and their unread bytes are bounded, and only the sampler asks the card.

mod events;
mod http;
mod reach;
mod routes;
mod sampler;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::Source;
pub use reach::Reach;
use sampler::Sampler;

/// Why there is no admin port.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// It would be open to others.
    #[error(
        "{0} is not a loopback address, and whoever reaches it sees everything without a password: use 127.0.0.1 (and a tunnel or a proxy that \
         asks for one), or add --admin-anyone if that is meant"
    )]
    NotLoopback(SocketAddr),
    /// The address is not available.
    #[error("cannot listen on {address} (--admin): {error}")]
    Bind {
        /// Which address it is.
        address: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// There is no thread, or nothing to wait with.
    #[error("cannot start the admin server: {0}")]
    Start(std::io::Error),
}

/// A listening admin port. Dropping it closes it and every connection.
#[derive(Debug)]
pub struct AdminServer {
    address: SocketAddr,
    /// Taken by [`AdminServer::serve`].
    listener: Option<TcpListener>,
    reach: Reach,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    sampler: Option<Sampler>,
}

impl AdminServer {
    /// Listens. Nobody is answered before [`AdminServer::serve`].
    ///
    /// # Errors
    /// The address is not a loopback one although only those are allowed, or cannot be had.
    pub fn bind(address: SocketAddr, reach: Reach) -> Result<Self, AdminError> {
        if reach == Reach::Machine && !address.ip().is_loopback() {
            return Err(AdminError::NotLoopback(address));
        }
        let bound = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        });
        let (address, listener) = bound.map_err(|error| AdminError::Bind { address, error })?;
        Ok(Self {
            address,
            listener: Some(listener),
            reach,
            stop: None,
            thread: None,
            sampler: None,
        })
    }

    /// Where it listens; with the port that the system chose if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers from threads of its own until dropped.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn serve(&mut self, source: Arc<dyn Source>) -> Result<(), AdminError> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let sampler = Sampler::start(Arc::clone(&source)).map_err(AdminError::Start)?;
        let routes = Arc::new(routes::Routes::new(source, sampler.latest(), self.reach));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(AdminError::Start)?;
        let (stop, stopped) = oneshot::channel();
        let body = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = http::accept(listener, routes) => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_timeout(Duration::from_millis(100));
        };
        let thread = std::thread::Builder::new()
            .name("admin".into())
            .spawn(body)
            .map_err(AdminError::Start)?;
        (self.stop, self.thread, self.sampler) = (Some(stop), Some(thread), Some(sampler));
        Ok(())
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_let_in_only_if_that_is_said() {
        let anywhere: SocketAddr = "0.0.0.0:0".parse().unwrap();
        let error = AdminServer::bind(anywhere, Reach::Machine).unwrap_err().to_string();
        assert!(error.contains("--admin-anyone"), "{error}");
        assert!(AdminServer::bind("[::]:0".parse().unwrap(), Reach::Machine).is_err());
        assert!(AdminServer::bind(anywhere, Reach::Anyone).is_ok());
        let server = AdminServer::bind("127.0.0.1:0".parse().unwrap(), Reach::Machine).unwrap();
        assert_ne!(server.address().port(), 0);
        let taken = AdminServer::bind(server.address(), Reach::Machine).unwrap_err().to_string();
        assert!(taken.contains(&server.address().to_string()), "{taken}");
    }
}
