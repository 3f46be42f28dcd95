//! Interim replies, trailers, content that waits for the server's word, and other protocols: all
//! pass, and the connection is as good as before.

use super::stage::{Connection, Stage, text};

const SCRIPT: &str = r#"
const fs = require('fs'), http = require('http');
const server = http.createServer((request, reply) => {
  const path = '@ROOT@' + request.url;
  let length = 0;
  request.on('data', (data) => { length += data.length; });
  request.on('end', () => {
    if (request.url === '/hints') {
      reply.writeEarlyHints({ link: '</style.css>; rel=preload' });
      setTimeout(() => reply.end('after hints'), 20);
    } else if (request.url === '/trailers') {
      reply.writeHead(200, { Trailer: 'X-Sum' });
      reply.write('with trailers');
      reply.addTrailers({ 'X-Sum': '7' });
      reply.end();
    } else if (request.method !== 'GET') {
      const text = 'took ' + length;
      reply.writeHead(200, { 'Content-Length': text.length });
      reply.end(text);
    } else {
      const content = fs.readFileSync(path);
      reply.writeHead(200, { 'Content-Length': content.length, 'Content-Type': 'text/plain' });
      reply.end(content);
    }
  });
});
server.on('checkExpectation', (request, reply) => { reply.writeHead(417); reply.end(); });
server.on('checkContinue', (request, reply) => {
  if (request.url === '/no') {
    reply.writeHead(413, { 'Content-Length': 0 });
    reply.end();
    return;
  }
  reply.writeContinue();
  server.emit('request', request, reply);
});
server.on('upgrade', (request, socket) => {
  socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n');
  socket.on('data', (data) => socket.write(data.toString().toUpperCase()));
});
server.listen(80);
"#;

const FILE: &str = "GET /small.txt HTTP/1.1\r\nHost: files\r\n\r\n";

/// Asks on this connection until there is a hit.
fn hit(stage: &Stage, connection: &mut Connection) {
    for _ in 0..60 {
        let before = stage.counter("hits");
        let reply = connection.ask(FILE);
        assert_eq!(reply.body, text(1000));
        if stage.counter("hits") > before {
            return;
        }
        // Two executions for different clients must agree.
        stage.ask("GET", "/small.txt", "");
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    panic!("no hit on this connection: {}", super::common::status(stage.nicache.name()));
}

#[test]
fn everything_passes_and_hits_go_on() {
    let Some(stage) = Stage::node(&[], SCRIPT) else { return };
    let mut connection = stage.connect();
    hit(&stage, &mut connection);

    connection.send(b"GET /hints HTTP/1.1\r\nHost: files\r\n\r\n");
    let hints = connection.reply(false);
    assert_eq!((hints.status(), hints.field("link")), (103, Some("</style.css>; rel=preload")));
    assert_eq!(connection.reply(false).body, b"after hints");
    hit(&stage, &mut connection);

    let reply = connection.ask("GET /trailers HTTP/1.1\r\nHost: files\r\nTE: trailers\r\n\r\n");
    assert_eq!((reply.body.as_slice(), reply.field("x-sum")), (&b"with trailers"[..], Some("7")));
    hit(&stage, &mut connection);

    // Content that is sent when the server wants it, with a request pipelined behind.
    for len in [5, 3000, 100_000] {
        connection.send(
            format!("PUT /take HTTP/1.1\r\nHost: files\r\nContent-Length: {len}\r\nExpect: 100-continue\r\n\r\n")
                .as_bytes(),
        );
        assert_eq!(connection.reply(false).status(), 100);
        connection.send(&text(len));
        assert_eq!(connection.reply(false).body, format!("took {len}").into_bytes());
        hit(&stage, &mut connection);
    }
    // All at once.
    connection.send(
        format!("PUT /take HTTP/1.1\r\nHost: files\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello{FILE}")
            .as_bytes(),
    );
    assert_eq!(connection.reply(false).status(), 100);
    assert_eq!(connection.reply(false).body, b"took 5");
    assert_eq!(connection.reply(false).body, text(1000));

    // Refused, and the content is never sent: nobody but the server knows what comes next.
    let mut refused = stage.connect();
    refused.send(
        b"PUT /no HTTP/1.1\r\nHost: files\r\nContent-Length: 50\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(refused.reply(false).status(), 413);
}

#[test]
fn a_content_that_was_announced_is_never_a_request() {
    let Some(stage) = Stage::node(&[], SCRIPT) else { return };
    let mut connection = stage.connect();
    hit(&stage, &mut connection);
    // The server takes these bytes for content, so the card must not answer them.
    connection.send(
        format!(
            "PUT /take HTTP/1.1\r\nHost: files\r\nContent-Length: {}\r\n\r\n{FILE}",
            FILE.len()
        )
        .as_bytes(),
    );
    assert_eq!(connection.reply(false).body, format!("took {}", FILE.len()).into_bytes());
    let mut connection = stage.connect();
    connection.send(
        format!(
            "PUT /no HTTP/1.1\r\nHost: files\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
            FILE.len()
        )
        .as_bytes(),
    );
    assert_eq!(connection.reply(false).status(), 413);
    let before = stage.counter("hits");
    connection.send(FILE.as_bytes());
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(stage.counter("hits"), before);
}

#[test]
fn other_protocols_pass() {
    let Some(stage) = Stage::node(&[], SCRIPT) else { return };
    let mut connection = stage.connect();
    connection
        .send(b"GET /echo HTTP/1.1\r\nHost: files\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(connection.reply(false).status(), 101);
    // What looks like a request is none here.
    connection.send(FILE.to_lowercase().as_bytes());
    let mut answer = vec![0; FILE.len()];
    std::io::Read::read_exact(&mut connection.stream, &mut answer).unwrap();
    assert_eq!(answer, FILE.to_uppercase().as_bytes());
}
