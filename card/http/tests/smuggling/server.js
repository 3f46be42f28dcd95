// Tells in X-Echo what it takes a request for: method, target, Host, bytes of content. Ends with its standard input.
const http = require('http');
const server = http.createServer((request, reply) => {
  let length = 0;
  request.on('data', (data) => { length += data.length; });
  request.on('end', () => {
    try {
      reply.setHeader('X-Echo', `${request.method} ${request.url} ${request.headers.host ?? '(none)'} ${length}`);
    } catch {
      reply.setHeader('X-Echo', 'odd');
    }
    reply.setHeader('Content-Length', 0);
    reply.end();
  });
});
server.keepAliveTimeout = 3000;
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit());
process.stdin.resume();
