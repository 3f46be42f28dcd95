//! Node: a server that streams files as the usual middleware does, and one that keeps them in its
//! own memory.

use super::site::Folder;
use super::stage::{Stage, Traits, get, is_there};
use super::{cases, edits};

const STREAMS: &str = r#"
const fs = require('fs'), http = require('http'), path = require('path');
const root = process.argv[2];
const types = {'.html': 'text/html', '.txt': 'text/plain'};
http.createServer((request, reply) => {
  const fail = (status) => { reply.writeHead(status, {'Content-Length': 0}); reply.end(); };
  if (request.method !== 'GET' && request.method !== 'HEAD') return fail(405);
  let name = path.normalize(decodeURIComponent(new URL(request.url, 'http://files').pathname));
  if (name.endsWith('/')) name += 'index.html';
  fs.stat(path.join(root, name), (error, file) => {
    if (error) return fail(404);
    if (file.isDirectory()) { reply.setHeader('Location', name + '/'); return fail(301); }
    const tag = '"' + file.size.toString(16) + '-' + file.mtimeMs.toString(16) + '"';
    const fields = {'ETag': tag, 'Last-Modified': file.mtime.toUTCString()};
    if (request.headers['if-none-match'] === tag) { reply.writeHead(304, fields); return reply.end(); }
    const stream = fs.createReadStream(path.join(root, name));
    stream.on('error', () => fail(403));
    stream.on('open', () => {
      fields['Content-Type'] = types[path.extname(name)] || 'application/octet-stream';
      fields['Content-Length'] = file.size;
      reply.writeHead(200, fields);
      if (request.method === 'HEAD') { stream.destroy(); return reply.end(); }
      stream.pipe(reply);
    });
  });
}).listen(80, '0.0.0.0');
"#;

/// Reads a file once, and again when it is told to by a request.
const KEEPS: &str = r#"
const fs = require('fs'), http = require('http'), path = require('path');
const root = process.argv[2], kept = new Map();
http.createServer((request, reply) => {
  if (request.url === '/forget') { kept.clear(); return reply.end('forgotten\n'); }
  try {
    if (!kept.has(request.url)) kept.set(request.url, fs.readFileSync(path.join(root, request.url)));
    const body = kept.get(request.url);
    reply.writeHead(200, {'Content-Type': 'text/plain', 'Content-Length': body.length});
    reply.end(body);
  } catch { reply.writeHead(404, {'Content-Length': 0}); reply.end(); }
}).listen(80, '0.0.0.0');
"#;

fn stage(name: &'static str, script: &str) -> Option<Stage> {
    let command = |folder: &Folder| {
        let script = folder.write("server.js", script);
        ["node", &script, folder.root().to_str().unwrap()].map(str::to_owned).to_vec()
    };
    is_there("node")
        .then(|| Stage::new(name, Traits { is_root: true, ..Traits::default() }, &[], command))
}

#[test]
fn streaming() {
    let Some(stage) = stage("Node, streams", STREAMS) else { return };
    cases::check(&stage);
    edits::check(&stage);
}

/// A server that keeps files in its memory is old by itself. What the card gives is never older
/// than that: once the server has forgotten, neither has the card a former state.
#[test]
fn keeping_files_in_memory() {
    let Some(stage) = stage("Node, memory", KEEPS) else { return };
    let (request, forget) =
        (get("/edits/page.txt", ""), get("/forget", "Cache-Control: no-cache\r\n"));
    let mut kept = 0;
    for round in 0..12 {
        let content = format!("state {round} of the file\n");
        stage.folder.put("edits/page.txt", content.as_bytes());
        let after_edit = (stage.ask(&request), stage.ask_beside(&request));
        assert_eq!(after_edit.0, after_edit.1, "round {round}");
        stage.ask_beside(&forget);
        // Read again by a request beside the card, or by one through it.
        if round % 2 == 0 {
            assert_eq!(stage.ask_beside(&request).body, content.as_bytes(), "round {round}");
        }
        for _ in 0..4 {
            let before = stage.hits();
            assert_eq!(stage.ask(&request).body, content.as_bytes(), "round {round}");
            kept += stage.hits() - before;
            stage.settle();
        }
    }
    println!("{}: {kept} hits", stage.name);
}
