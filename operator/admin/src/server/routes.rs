//! What there is to ask for.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue,
};
use hyper::{Method, Request, Response, StatusCode};
use nicache_exposition::Format;
use tokio::sync::Semaphore;

use super::events::Content;
use super::reach::Reach;
use super::sampler::Latest;
use crate::Source;
use crate::metrics::render;
use crate::page::{Page, page};

/// Pages that follow events at once, so others still find a connection.
const FOLLOWERS_MAX: usize = 32;
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
/// What nothing but the page may do.
const NO_CONTENT_POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

/// What is needed to answer.
pub(super) struct Routes {
    source: Arc<dyn Source>,
    latest: Arc<Latest>,
    reach: Reach,
    page: Page,
    followers: Arc<Semaphore>,
}

impl Routes {
    /// For that source.
    pub(super) fn new(source: Arc<dyn Source>, latest: Arc<Latest>, reach: Reach) -> Self {
        Self {
            source,
            latest,
            reach,
            page: page(),
            followers: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
        }
    }

    /// The reply to a request; a body that it may have is not read.
    pub(super) fn reply<B>(&self, request: &Request<B>) -> Response<Content> {
        let header =
            |name| request.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        if self.reach == Reach::Machine && !header(HOST).is_some_and(is_of_machine) {
            // Else a page of another site, whose name leads to this machine, could read what is
            // here.
            return reply(
                StatusCode::MISDIRECTED_REQUEST,
                TEXT,
                "ask for this by its IP address, or as localhost\n",
            );
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refusal =
                reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, "there is nothing to change here\n");
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refusal;
        }
        match request.uri().path() {
            "/" => {
                let mut reply =
                    reply(StatusCode::OK, "text/html; charset=utf-8", self.page.html.clone());
                if let Ok(policy) = HeaderValue::from_str(&self.page.policy) {
                    reply.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
                }
                reply
            }
            "/metrics" => {
                let format = Format::wanted(header(ACCEPT));
                let sample = self.latest.moment().sample.ok();
                let text = render(
                    sample.as_deref(),
                    |counter| self.source.describe(counter),
                    |text| self.source.own_metrics(text),
                    format,
                );
                reply(StatusCode::OK, format.content_type(), text)
            }
            "/api/status" => {
                self.latest.ask_for_hottest();
                match self.latest.moment().sample {
                    Ok(sample) => reply(
                        StatusCode::OK,
                        JSON,
                        serde_json::to_string(&*sample).unwrap_or_default(),
                    ),
                    Err(error) => {
                        let text = serde_json::json!({ "error": error }).to_string();
                        reply(StatusCode::SERVICE_UNAVAILABLE, JSON, text)
                    }
                }
            }
            "/api/history" => reply(StatusCode::OK, JSON, self.latest.history_json()),
            "/api/events" if *request.method() == Method::GET => self.events(),
            "/healthz" => match self.latest.moment().sample {
                Ok(_) => reply(StatusCode::OK, TEXT, "ok\n"),
                Err(error) => reply(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{error}\n")),
            },
            _ => reply(
                StatusCode::NOT_FOUND,
                TEXT,
                "/, /metrics, /api/status, /api/history, /api/events, /healthz\n",
            ),
        }
    }

    fn events(&self) -> Response<Content> {
        let Ok(place) = Arc::clone(&self.followers).try_acquire_owned() else {
            return reply(StatusCode::SERVICE_UNAVAILABLE, TEXT, "too many follow already\n");
        };
        let mut reply = reply(StatusCode::OK, "text/event-stream", "");
        *reply.body_mut() = Content::events(self.latest.follow(), place);
        reply
    }
}

fn reply(
    status: StatusCode,
    kind: &'static str,
    text: impl Into<hyper::body::Bytes>,
) -> Response<Content> {
    let mut reply = Response::new(Content::text(text));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, NO_CONTENT_POLICY),
        (hyper::header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (hyper::header::X_FRAME_OPTIONS, "DENY"),
        (hyper::header::REFERRER_POLICY, "no-referrer"),
        (hyper::header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// Is a `Host` header one by which only this machine's own users ask: an IP address or localhost?
fn is_of_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_the_machine() {
        for host in
            ["127.0.0.1:9000", "127.0.0.1", "[::1]:9000", "[::1]", "localhost:9000", "LOCALHOST"]
        {
            assert!(is_of_machine(host), "{host}");
        }
        for host in [
            "",
            "evil.example:9000",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "[::1",
            ":9000",
        ] {
            assert!(!is_of_machine(host) || host == "[::1", "{host}");
        }
    }
}
