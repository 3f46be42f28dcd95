// A small application with its content in memory and in files.
'use strict';

const express = require('express');
const fs = require('fs/promises');
const path = require('path');

const port = Number(process.argv[2]);
const items = new Map();
for (let number = 1; number <= 20; number++) {
  items.set(number, { body: `This is item ${number}.`, version: 0 });
}

const app = express();
app.use(express.urlencoded({ extended: false }));

function page(title, body) {
  return `<!DOCTYPE html>\n<html lang="en">\n<title>${title}</title>\n<h1>${title}</h1>\n${body}\n</html>\n`;
}

app.get('/', (request, response) => {
  const rows = [...items].map(([number, item]) => `<li><a href="/item/${number}">${item.body}</a> version=${item.version}.</li>`);
  response.send(page('All items', `<ul>\n${rows.join('\n')}\n</ul>`));
});

app.get('/item/:number', (request, response) => {
  const number = Number(request.params.number);
  const item = items.get(number);
  if (!item) {
    response.status(404).send(page('No such item', ''));
    return;
  }
  response.send(page(`Item ${number}`, `<p>${item.body}</p>\n<p>version=${item.version}.</p>`));
});

app.post('/item/:number', (request, response) => {
  const item = items.get(Number(request.params.number));
  const version = Number(request.body.version);
  if (!item || !Number.isInteger(version)) {
    response.status(400).send(page('That is not possible', ''));
    return;
  }
  item.version = version;
  response.redirect(303, `/item/${request.params.number}`);
});

app.get('/file', async (request, response, next) => {
  try {
    const content = await fs.readFile(path.join(__dirname, 'content.txt'), 'utf8');
    response.send(page('A file', `<p>${content}</p>`));
  } catch (error) {
    next(error);
  }
});

app.get('/time', (request, response) => response.send(page('Time', `<p>It is ${Date.now()}.</p>`)));

const server = app.listen(port, '0.0.0.0');
process.on('SIGTERM', () => {
  server.close(() => process.exit(0));
  server.closeAllConnections?.();
});
