//! Connections and their limits.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::routes::Routes;

/// Connections at once; further ones wait to be accepted.
pub(super) const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's head, and of what may wait to be written.
const BUFFER_BYTES: usize = 16 * 1024;
/// How long a request's head may take, the pause before it included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long sent bytes may remain without acknowledgment, a client's closed window included (RFC
/// 5482).
const UNREAD_TIMEOUT_MS: u32 = 20_000;
/// How long a connection may last. Pages that follow events connect again.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(3600);
/// Pause after a failure to accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers until it is dropped.
pub(super) async fn accept(listener: TcpListener, routes: Arc<Routes>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("the admin port cannot be used: {error}"),
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let routes = Arc::clone(&routes);
                tokio::spawn(async move {
                    let _ =
                        tokio::time::timeout(CONNECTION_TIMEOUT, converse(stream, routes)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!("the admin port: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn converse(stream: TcpStream, routes: Arc<Routes>) {
    let _ = stream.set_nodelay(true);
    // Without it the connection lasts longer, that is all.
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, UNREAD_TIMEOUT_MS);
    let service = service_fn(move |request| {
        let reply = routes.reply(&request);
        async move { Ok::<_, Infallible>(reply) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!("a connection to the admin port: {error}");
    }
}
